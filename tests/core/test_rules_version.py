"""The version of the rules belongs to a policy, and snapshots record it."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import NULL_ARM, RULES_KNOWN, RULES_VERSION, SquareCBwK, snapshot

POLICY = SquareCBwK(arms=2, dimension=2, resources=1, horizon=100, budget=50)


def test_a_new_policy_has_the_newest_version_of_the_rules():
    assert POLICY.rules == RULES_VERSION == max(RULES_KNOWN)


@pytest.mark.parametrize("rules", [0, 6, 99, True, "1", None])
def test_a_version_that_is_not_known_is_refused(rules):
    with pytest.raises(ValueError, match=r"rules must be one of \(1, 2, 3, 4, 5\), got"):
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
    with pytest.raises(ValueError, match="rules cannot change, was 1, got 5"):
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


@pytest.mark.parametrize(
    ("rules", "model", "plausible"), [(3, "per_arm", False), (4, "per_arm", True), (4, "shared", False)]
)
def test_from_version_4_on_arms_with_parameters_of_their_own_are_tried_by_plausibility(rules, model, plausible):
    """An arm that was never tried, beside one that is known well, keeps a twentieth at least only by plausibility."""
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=4000, budget=1000, model=model, rules=rules)
    assert policy.tries_plausible_arms is plausible
    if model == "per_arm":
        state = policy.init()
        for reward in (1.0, 0.0, 1.0, 1.0) * 10:
            state = policy.learn(state, [[1.0]], [0], [reward], [[0.2]])
        others = policy.decide(state, np.array([[1.0]]), np.array([0.5])).probabilities[0, 1]
        assert bool(others > 0.05) is plausible


@pytest.mark.parametrize(("rules", "most"), [(3, 1.0), (4, 0.001)])
def test_from_version_4_on_an_arm_that_the_budget_pays_seven_times_is_hardly_tried(rules, most):
    sizes = {"arms": 2, "dimension": 1, "resources": 1, "horizon": 3600, "budget": 3600, "model": "per_arm"}
    policy = SquareCBwK(**sizes, max_cost=((500.0,), (1.0,)), rules=rules)
    odds = policy.decide(policy.init(), np.array([[1.0]]), np.array([0.5])).probabilities[0]
    assert odds[0] < most
    assert bool(odds[1] > 0.99) is (rules == 4)


@pytest.mark.parametrize("rules", [3, 4])
def test_from_version_4_on_the_noise_of_a_cheap_arm_is_not_that_of_a_dear_one(rules):
    sizes = {"arms": 2, "dimension": 1, "resources": 1, "horizon": 100, "budget": 50, "model": "per_arm"}
    policy = SquareCBwK(**sizes, max_cost=((10.0,), (0.1,)), rules=rules)
    state = policy.init()
    for _ in range(9):
        state = policy.learn(state, [[1.0]], [0], [0.5], [[9.0]])
    noise = policy.quote(state).noise[0]
    assert noise[0] > 1.1 * noise[-1] if rules == 4 else noise.shape == (1,)


@pytest.mark.parametrize("exclude", [None, np.zeros((1, 2), dtype=bool)], ids=["one in floats", "rows"])
@pytest.mark.parametrize(("rules", "played"), [(4, False), (5, True)])
def test_from_version_5_on_an_arm_below_null_at_added_prices_is_played_until_it_is_known(rules, played, exclude):
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=4000, budget=4000, model="per_arm", rules=rules)
    state = policy.init()
    for arm, reward in [(0, 0.0), (0, 0.0), (0, 1.0), *[(1, 0.0)] * 40]:
        state = policy.learn(state, [[1.0]], [arm], [reward], [[0.5]])
    one, uniform = np.array([[1.0]]), np.array([0.5])
    choice = policy.decide(state, one, uniform, exclude, prices=np.array([0.8]))
    worth = choice.thought.predictions[0, :, 0] - 0.8 * choice.thought.predictions[0, :, 1]
    assert (worth < 0.0).all(), "null is best by what is known"
    assert bool(choice.probabilities[0, 0] > 0.9) is played
    assert bool(choice.probabilities[0, -1] > 0.5) is not played


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("model", ["per_arm", "shared"])
def test_without_a_pace_version_5_plays_bit_for_bit_as_version_4(model, rows):
    """So what was measured of version 4 in worlds without windows is true of version 5."""
    newer = SquareCBwK(arms=3, dimension=2, resources=2, horizon=600, budget=[90, 200], model=model, rules=5)
    older, rng = replace(newer, rules=4), np.random.default_rng(7)
    one, other, nulls = newer.init(), older.init(), 0
    for number in range(150):
        features = rng.random((rows, 3, 2) if model == "shared" else (rows, 2))
        uniforms, reward, costs = rng.random(rows), rng.random(rows), rng.random((rows, 2))
        free = np.full(2, float(number % 10))  # nothing can be paid in one call of ten
        choice = newer.decide(one, features, uniforms, free=free)
        same = older.decide(other, features, uniforms, free=free)
        np.testing.assert_array_equal(choice.probabilities, same.probabilities)
        np.testing.assert_array_equal(choice.ticket.numbers, same.ticket.numbers)
        one = newer.settle(newer.commit(one, choice.ticket), choice.ticket, reward, costs)
        other = older.settle(older.commit(other, same.ticket), same.ticket, reward, costs)
        np.testing.assert_array_equal(one.books, other.books)
        nulls += int((choice.arm == NULL_ARM).sum())
    assert nulls > 15 * rows  # prices say no to some, too
