"""The version of the rules belongs to a policy, and snapshots record it."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import RULES_KNOWN, RULES_VERSION, SquareCBwK, snapshot

POLICY = SquareCBwK(arms=2, dimension=2, resources=1, horizon=100, budget=50)


def test_a_new_policy_has_the_newest_version_of_the_rules():
    assert POLICY.rules == RULES_VERSION == max(RULES_KNOWN)


@pytest.mark.parametrize("rules", [0, 4, 99, True, "1", None])
def test_a_version_that_is_not_known_is_refused(rules):
    with pytest.raises(ValueError, match=r"rules must be one of \(1, 2, 3\), got"):
        replace(POLICY, rules=rules)


def test_the_fingerprint_of_version_1_names_no_version():
    older = replace(POLICY, rules=1)
    assert snapshot.fingerprint_of(older.encode(older.init())) == repr(older)
    assert "rules" not in repr(older)


@pytest.mark.parametrize(("writer", "reader"), [(1, 2), (2, 1)])
def test_only_the_version_that_encoded_a_state_decodes_it(writer, reader):
    data = replace(POLICY, rules=writer).encode(POLICY.init())
    replace(POLICY, rules=writer).decode(data)
    with pytest.raises(ValueError, match="rules 2"):
        replace(POLICY, rules=reader).decode(data)


def test_a_policy_keeps_its_version_for_good():
    older = replace(POLICY, rules=1)
    with pytest.raises(ValueError, match="rules cannot change, was 1, got 3"):
        POLICY.adopt(older, older.init())
    replace(older, budget=70).adopt(older, older.init())


@pytest.mark.parametrize(("rules", "features"), [(1, 3), (2, 101)])
def test_from_version_2_on_gamma_counts_the_features_of_a_kernel(rules, features):
    policy = SquareCBwK(
        arms=4, dimension=2, resources=1, horizon=100, budget=50, model="per_arm", oracle="kernel", rules=rules
    )
    assert policy.parameters == 4 * features  # in every block; the constant is one of them
    # The noise before the first outcome is 1/12 at prices of 0.
    np.testing.assert_allclose(policy.quote(policy.init()).gamma, 4.0 * np.sqrt(5 * 12 / (4 * features)))


@pytest.mark.parametrize(("rules", "blocks"), [(1, 1), (2, 4)])
def test_from_version_2_on_the_regret_of_gradient_descent_counts_the_blocks(rules, blocks):
    sizes = {"arms": 4, "dimension": 2, "resources": 3, "horizon": 100, "budget": 50}
    policy = SquareCBwK(**sizes, model="per_arm", preset="paper", oracle="gradient", rules=rules)
    np.testing.assert_allclose(policy.oracle_regrets(900), [30 * blocks**0.5, 90 * blocks**0.5])
