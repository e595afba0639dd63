"""What a decision keeps of the policy's thoughts, and what people are shown of it."""

import numpy as np
import orjson
import pytest

from cbwk_core.ticket import Thought
from service.domain.campaign import Campaign
from service.domain.decision_rows import EXPLAINED_ARMS_MAX, explanation_of, packed, unpacked
from tests.service.engine.campaigns import config


def thought(arms, resources=2, seed=0):
    rng = np.random.default_rng(seed)
    predictions = rng.normal(size=(3, arms, 1 + resources))
    probabilities = rng.dirichlet(np.ones(arms + 1), size=3)
    return Thought(predictions, np.ones((1, resources)), np.ones((1, 1))), probabilities


def test_who_asks_for_an_explanation_gets_every_digit_again_and_others_three_and_seven():
    one, probabilities = thought(10)
    short, full, _ = packed(one, probabilities, [False, True, False])
    exact = unpacked(full, 2)
    np.testing.assert_array_equal(exact, np.column_stack([one.predictions[1], probabilities[1, :-1]]))
    kept = unpacked(short, 2)
    np.testing.assert_allclose(kept[:, :-1], one.predictions[0], rtol=2**-11)
    np.testing.assert_allclose(kept[:, -1], probabilities[0, :-1], rtol=2**-24)
    assert len(short) == 1 + 10 * (3 * 2 + 4)


def test_what_can_be_played_never_looks_as_if_it_could_not():
    one, probabilities = thought(4)
    probabilities[:, 0] = 1e-30
    (short,) = packed(Thought(one.predictions[:1] * 1e9, one.prices, one.gamma), probabilities[:1], [False])
    table = unpacked(short, 2)
    assert np.isfinite(table).all()
    assert (table[:, -1] > 0).all()


def test_of_very_many_arms_only_who_asks_for_an_explanation_gets_one():
    one, probabilities = thought(EXPLAINED_ARMS_MAX + 1)
    first, *others = packed(one, probabilities, [True, False, False])
    np.testing.assert_array_equal(unpacked(first, 2)[:, :-1], one.predictions[0])
    assert others == [None] * 2
    assert unpacked(None, 2).shape == (0, 4)


def test_costs_and_prices_are_shown_in_the_units_of_the_campaign_where_every_arm_declares_less():
    body = config() | {"arms": [{"id": "a", "max_cost": {"usd": 0.5}}, {"id": "b", "max_cost": {"usd": 0.25}}]}
    campaign = Campaign(1, "c", 1, body)
    d = len(campaign.resources)
    one = Thought(np.full((1, 2, 1 + d), 0.5), np.full((1, d), 2.0), np.ones((1, 1)))
    (kept,) = packed(one, np.array([[0.5, 0.25, 0.25]]), [True])
    row = {
        "actions": None,
        "prices": np.full(d, 2.0).tobytes(),
        "explanation": kept,
        "numbers": np.zeros(2 + 2 * d).tobytes(),
        "exclude": orjson.dumps(["b"]),
        "reason": "policy",
        "config_version": 1,
        "gamma": 1.0,
    }
    shown = explanation_of(campaign, row)
    assert shown["prices"]["usd"] == pytest.approx(2.0 / 0.5)
    assert [arm["cost"]["usd"] for arm in shown["arms"]] == pytest.approx([0.25, 0.25])
