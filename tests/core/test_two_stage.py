"""Algorithm 2: what stage one collects, what it concludes from that, and when it is worth its price."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cbwk_core import NULL_ARM, SquareCBwK, Ticket, stage_estimate, two_stage
from cbwk_core.problem import Problem
from cbwk_core.simulation import LinearEnvironment, PaperEnvironment
from cbwk_core.simulation.two_stage_study import Setting, budget_of, first_stage, smallest_informative_horizon

pytestmark = pytest.mark.slow

ENVIRONMENTS = [  # small enough that a hundred runs take seconds
    PaperEnvironment(m=5, arms=2, resources=2),
    LinearEnvironment(arms=2, dimension=5, resources=2),
    LinearEnvironment(arms=2, dimension=5, resources=2, reward_scale=0.1),
]
SIZES = {"arms": 3, "dimension": 10, "resources": 4}
sizes = st.fixed_dictionaries(
    {"arms": st.integers(1, 60), "dimension": st.integers(1, 60), "resources": st.integers(1, 9)}
)


def policy_for(environment, horizon, preset, mode):
    return Setting("", environment, horizon, budget_of(horizon)).policy(preset, mode)


def problem_of(*, arms, dimension, resources, horizon):
    return Problem.of(arms=arms, dimension=dimension, resources=resources, horizon=horizon, budget=1.0)


@pytest.mark.parametrize(
    ("environment", "horizon"),
    list(zip(ENVIRONMENTS, (3_000, 1_000, 1_000), strict=True)),
    ids=["paper", "linear", "low"],
)
def test_the_radius_by_the_measured_margin_is_large_enough_in_95_of_100_runs_and_below_the_widest(environment, horizon):
    policy = policy_for(environment, horizon, "authors", "measured")
    found = stage_estimate.estimate(policy, first_stage(policy, environment, range(100)), "measured")
    budget = budget_of(horizon)
    wanted = horizon / budget * environment.optimum(budget / horizon)
    assert ((found.radius >= wanted) & (found.radius <= 3.0 * (wanted + 1.0))).sum() >= 95
    assert np.median(found.radius) < 0.9 * horizon / budget


RULES = st.sampled_from([1, 2, 3])


@given(sizes=sizes, horizon=st.integers(1, 10**7), rules=RULES)
def test_stage_one_plays_every_arm_for_the_least_whole_number_above_the_formula(sizes, horizon, rules):
    t0 = two_stage.theory_length(problem_of(**sizes, horizon=horizon), rules)
    volume, K = sizes["dimension"] * sizes["resources"], sizes["arms"] + (rules >= 2)  # the paper counts the null arm
    assert (t0 - 1) ** 6 * K**3 < volume**2 * horizon**3 <= t0**6 * K**3


@given(sizes=sizes, horizon=st.integers(1, 10**9), rules=RULES)
def test_the_papers_margin_is_its_formula(sizes, horizon, rules):
    problem = problem_of(**sizes, horizon=horizon)
    K, m, d, T = sizes["arms"] + (rules >= 2), sizes["dimension"], sizes["resources"], horizon
    t0 = two_stage.theory_length(problem, rules)
    error_of_reward = m * math.log(T) / t0
    error_of_costs = m * d * math.log(T) / t0
    squared = K * (error_of_reward + d * error_of_costs) + 4.0 * math.log(T * d) / t0
    assert two_stage.paper_margin(problem, rules) ** 2 == pytest.approx(squared, rel=1e-9, abs=1e-12)


@settings(max_examples=20)
@given(sizes=sizes, data=st.data())
def test_before_the_smallest_informative_horizon_the_papers_margin_is_at_least_1(sizes, data):
    least = smallest_informative_horizon(**sizes)
    assert two_stage.paper_margin(problem_of(**sizes, horizon=least), rules=2) < 1.0
    for before in (least - 1, data.draw(st.integers(8, least - 1))):
        assert two_stage.paper_margin(problem_of(**sizes, horizon=before), rules=2) >= 1.0


@pytest.mark.parametrize("mode", ["paper", "measured"])
def test_the_radius_is_at_most_the_widest_and_the_papers_margin_leaves_it_there(mode):
    environment, horizon = ENVIRONMENTS[0], 1_000
    policy = policy_for(environment, horizon, "paper", mode)
    found = stage_estimate.estimate(policy, first_stage(policy, environment, range(5)), mode)
    widest = horizon / budget_of(horizon)
    assert (found.radius <= widest).all()
    if mode == "paper":
        assert (found.margin > 1.0).all()
        np.testing.assert_allclose(found.radius, widest)


def test_stage_one_of_the_paper_has_exactly_as_many_outcomes_of_every_arm_and_as_many_contexts():
    environment = ENVIRONMENTS[1]
    policy = policy_for(environment, 1_000, "paper", "paper")
    stage = first_stage(policy, environment, range(4))
    t0 = two_stage.length(policy)
    assert stage.contexts.shape == (t0, 4, 2, 5)
    for lane in range(4):
        played = stage.arms[stage.weights[:, lane] > 0, lane]
        assert played.tolist() == [0] * t0 + [1] * t0


def test_stage_one_of_the_authors_draws_arms_uniformly_and_then_collects_contexts():
    environment = ENVIRONMENTS[1]
    policy = policy_for(environment, 1_000, "authors", "measured")
    t0 = two_stage.length(policy)
    rng, state, x = np.random.default_rng(1), policy.init(), np.full((1, 2, 5), 0.1)
    for t in range(3 * t0):
        choice = policy.decide(state, x, rng.random(1))
        if t < 2 * t0:
            np.testing.assert_allclose(choice.probabilities, [[0.5, 0.5, 0.0]])
            np.testing.assert_allclose(choice.probability, 0.5)
        else:
            assert choice.arm[0] == NULL_ARM
            assert choice.probability[0] == 1.0
        state = policy.commit(state, choice.ticket)
        state = policy.settle(state, choice.ticket, np.zeros(1), np.zeros((1, 2)))
    assert policy.refresh_due(state)


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_a_caller_who_logs_stage_one_finds_the_same_radius_as_a_state_that_collects_it(model):
    sizes = {"arms": 2, "dimension": 2, "resources": 1, "horizon": 450, "budget": 225, "max_cost": 2.0, "model": model}
    collecting = SquareCBwK(**sizes, preset="paper", two_stage=True, stage_one="uniform")
    logging = SquareCBwK(**sizes, preset="paper", two_stage=True, stage_one="logged")
    rng, states, log, contexts = np.random.default_rng(2), [collecting.init(), logging.init()], [], []
    t0 = two_stage.length(logging)
    for t in range(3 * t0):
        x, uniform = rng.random((1, 2) if model == "per_arm" else (1, 2, 2)), rng.random(1)
        choices = [
            policy.decide(state, x, uniform) for policy, state in zip((collecting, logging), states, strict=True)
        ]
        assert choices[0].arm == choices[1].arm
        states = [
            policy.commit(state, choice.ticket)
            for policy, state, choice in zip((collecting, logging), states, choices, strict=True)
        ]
        if t >= 2 * t0:
            contexts.append(x.reshape(-1, 2))
            continue
        np.testing.assert_allclose(choices[0].probabilities, [[0.5, 0.5, 0.0]])
        weight, reward, cost = float(t % 7 > 0), rng.random(1), 2.0 * rng.random((1, 1))
        log.append((choices[1].ticket, reward[0], cost[0], weight))
        states = [
            policy.settle(state, choice.ticket, reward, cost, learn=bool(weight))
            for policy, state, choice in zip((collecting, logging), states, choices, strict=True)
        ]
    assert collecting.refresh_due(states[0])
    assert not logging.refresh_due(states[1])
    assert states[1].stage.arms.size == states[1].stage.contexts.size == 0
    tickets, rewards, costs, weights = zip(*log, strict=True)
    together = Ticket(*(np.concatenate(parts) for parts in list(zip(*tickets, strict=True))[:3]))
    stage = two_stage.gathered(
        logging, together, np.array(rewards), np.array(costs), np.array(weights), np.array(contexts)
    )
    found = stage_estimate.estimate(logging, stage, "measured")
    second = two_stage.second_stage(logging, states[1], found.radius)
    expected = collecting.refresh(states[0])
    assert second.stage.radius == expected.stage.radius < 450 / 112.5
    np.testing.assert_array_equal(second.books, expected.books)


def test_an_unknown_way_to_run_stage_one_is_refused():
    with pytest.raises(ValueError, match="stage_one must be one of"):
        SquareCBwK(**SIZES, horizon=1_000, budget=900, stage_one="twice")


@pytest.mark.parametrize(("mode", "preset"), [("paper", "paper"), ("measured", "authors"), (True, "paper")])
def test_a_budget_that_stage_one_could_exhaust_is_refused_with_what_is_needed_and_what_there_is(mode, preset):
    needed = 6 * 55  # (K + 2)·T0 with K = 4, the null arm among them, and T0 = ⌈∛40·√(1000/4)⌉
    SquareCBwK(**SIZES, horizon=1_000, budget=needed + 1, preset=preset, two_stage=mode)
    with pytest.raises(ValueError, match=r"budget above \(K \+ 2\)·T0 = 330 max costs, got 330"):
        SquareCBwK(**SIZES, horizon=1_000, budget=[1_000, needed, 1_000, 1_000], preset=preset, two_stage=mode)


def one_arm(rewards, costs):
    """Stage one of a policy with one arm, one feature, always 1, and one cost: predictions are Σy/(1 + n)."""
    policy = SquareCBwK(
        arms=1, dimension=1, resources=1, horizon=800, budget=600.0, model="per_arm", preset="authors", two_stage=True
    )
    state, x = policy.init(), np.ones((1, 1))
    for t in range(40):
        choice = policy.decide(state, x, [0.5])
        state = policy.commit(state, choice.ticket)
        outcome = ([rewards[t]], [[costs[t]]]) if t < 20 else ([0.0], [[0.0]])
        state = policy.settle(state, choice.ticket, *outcome)
    return policy, state.stage


def jackknife(y):
    """Variance plus squared bias of Σy/(1 + n) by leaving out every tenth outcome in turn."""
    left_out = [np.delete(y, np.s_[g::10]) for g in range(10)]
    parts = np.array([part.sum() / (1 + part.size) for part in left_out])
    bias = 9.0 * (parts.mean() - y.sum() / (1 + y.size))
    return 0.9 * ((parts - parts.mean()) ** 2).sum() + bias**2


@pytest.mark.parametrize("noisy", ["reward", "cost"])
def test_the_measured_margin_is_a_student_quantile_of_the_jackknife_error_and_costs_count_half(noisy):
    y = np.random.default_rng(2).random(20)
    steady = np.full(20, 0.5)
    policy, stage = one_arm(*((y, steady) if noisy == "reward" else (steady, y)))
    assert two_stage.length(policy) == 20
    share = 0.05 / 2
    each = [stats.t.ppf(1 - share, df=9) * math.sqrt(jackknife(values)) for values in (y, steady)]
    deviations = [each[0], each[1] / 2] if noisy == "reward" else [each[1], each[0] / 2]
    expected = max(*deviations, math.log(1 / share) / 20)
    found = stage_estimate.estimate(policy, stage, "measured")
    np.testing.assert_allclose(found.margin, expected, rtol=1e-9)


def test_a_reward_that_was_never_seen_still_has_a_margin():
    policy, stage = one_arm(np.zeros(20), np.zeros(20))
    np.testing.assert_allclose(stage_estimate.estimate(policy, stage, "measured").margin, math.log(40) / 20)


def test_an_arm_with_fewer_outcomes_than_groups_leaves_the_radius_at_its_widest():
    policy, stage = one_arm(np.full(20, 0.5), np.full(20, 0.5))
    few = np.where(np.arange(20)[:, None] < 9, 1.0, 0.0)
    found = stage_estimate.estimate(policy, stage._replace(weights=few), "measured")
    np.testing.assert_allclose(found.margin, 1.0)
    np.testing.assert_allclose(found.radius, 400 / 300)


# Theorem 4.2 applies to one arm and one feature, B = 0.9·T, from T = 13,000 or so on: M(T0) is then below 0.9.
PROVEN = {"arms": 1, "dimension": 1, "resources": 1, "horizon": 20_000, "budget": 18_000.0, "preset": "paper"}


def test_auto_of_the_paper_preset_is_algorithm_2_where_theorem_4_2_applies():
    policy = SquareCBwK(**PROVEN)
    assert two_stage.mode_of(policy) == "paper"
    assert policy.unmet_condition is None
    assert not policy.init().stage.running.any()
    assert two_stage.length(policy) == 100


@pytest.mark.parametrize(
    "other",
    [
        {"preset": "authors"},
        {"preset": "practical"},
        {"budget": 15_000.0},
        {"horizon": 10_000, "budget": 9_000.0},
        {"gamma": 5.0},
        {"z": 2.0},
        {"oracle": "gradient"},
        {"oracle": "kernel"},
        {"link": "logistic"},
        {"arms": 0},
    ],
    ids=repr,
)
def test_auto_is_algorithm_1_where_theorem_4_2_does_not_apply(other):
    policy = SquareCBwK(**{**PROVEN, **other})
    assert two_stage.mode_of(policy) == "off"
    assert policy.unmet_condition is None


def test_two_stages_asked_for_without_their_condition_say_which_one_fails():
    small = SquareCBwK(**{**PROVEN, "horizon": 1_000, "budget": 900.0}, two_stage="paper")
    t0 = math.ceil(math.sqrt(1_000 / 2))
    margin = math.sqrt(2 * 2 * math.log(1_000) / t0 + 4 * math.log(1_000) / t0)
    assert small.unmet_condition.startswith(
        f"theorem 4.2 needs a budget above T·M(T0) = {1_000 * margin:.1f} max costs"
    )
    poor = Problem.of(arms=1, dimension=1, resources=1, horizon=10**8, budget=4 * 7_072.0)
    assert "(K + 2)·T0 = 28288.0" in two_stage.unmet_condition(poor, rules=2)


# With rules 1: K·T0 is 3·198 = 594 at T = 10,000 with m = 10 and d = 4, a fifth of 2,970.
AUTO = {**SIZES, "horizon": 10_000, "budget": 2_970.0, "preset": "paper", "rules": 1}


def test_auto_of_rules_1_has_two_stages_for_the_paper_preset_where_stage_one_spends_at_most_a_fifth():
    auto = SquareCBwK(**AUTO)
    asked = SquareCBwK(**AUTO, two_stage="measured")
    assert two_stage.mode_of(auto) == "measured"
    assert two_stage.length(auto) == two_stage.length(asked) == 198
    assert not auto.init().stage.running.any()


@pytest.mark.parametrize(
    "other",
    [
        {"preset": "authors"},
        {"preset": "practical"},
        {"budget": 2_969.0},
        {"budget": [9_000.0, 9_000.0, 2_969.0, 9_000.0]},
        {"horizon": 9_999},
        {"gamma": 5.0},
        {"z": 2.0},
        {"oracle": "gradient"},
        {"link": "logistic"},
        {"arms": 0},
    ],
    ids=repr,
)
def test_auto_of_rules_1_has_one_stage_everywhere_else(other):
    policy = SquareCBwK(**{**AUTO, **other})
    assert two_stage.mode_of(policy) == "off"
    assert two_stage.length(policy) == 0
    assert policy.init().stage.running.all()


def test_a_radius_once_found_keeps_its_learning_rate_when_auto_would_no_longer_have_two_stages():
    many, few = SquareCBwK(**AUTO), SquareCBwK(**{**AUTO, "budget": 2_960.0})
    assert two_stage.mode_of(few) == "off"
    rng, state, x = np.random.default_rng(3), many.init(), np.full((1, 3, 10), 0.3)
    for _ in range(4 * 198):
        choice = many.decide(state, x, rng.random(1))
        state = many.commit(state, choice.ticket)
        real = choice.arm[0] != NULL_ARM
        state = many.settle(state, choice.ticket, rng.random(1) * real, rng.random((1, 4)) * real)
    with pytest.raises(ValueError, match="cannot change while stage one is under way"):
        few.adopt(many, state)
    dearer = replace(many, max_cost=2.0, unit=1.0, arm_unit=1.0)
    with pytest.raises(ValueError, match="max costs cannot change while stage one is under way"):
        dearer.adopt(many, state)
    state = many.refresh(state)
    adopted = few.adopt(many, state)
    np.testing.assert_array_equal(adopted.stage.radius, state.stage.radius)
    np.testing.assert_array_equal(few.quote(adopted).gamma, many.quote(state).gamma)
