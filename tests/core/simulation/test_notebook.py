from dataclasses import fields, replace

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.problem import Problem
from cbwk_core.simulation import PaperEnvironment, run
from cbwk_core.simulation.grids import reference
from cbwk_core.simulation.notebook import Departures, Notebook
from cbwk_core.ticket import BUDGET_EXHAUSTED, ENDED

PAPER_EXCEPT_GAMMA = replace(Departures.none(), gamma=True)


def problem_of(*, m=10, arms=3, resources=4, horizon=2000, budget=None):
    return Problem.of(
        arms=arms,
        dimension=m,
        resources=resources,
        horizon=horizon,
        budget=horizon / 4 if budget is None else budget,
    )


def runs_of(policy, problem, runs=10):
    environment = PaperEnvironment(m=problem.dimension, arms=problem.arms, resources=problem.resources)
    return run(policy, environment, horizon=problem.horizon, budget=problem.budget, seeds=range(runs))


def after_one_outcome(policy, features, reward, costs):
    state = policy.init()
    ticket = policy.decide(state, features, [0.5]).ticket
    return ticket, policy.settle(policy.commit(state, ticket), ticket, reward, costs)


@pytest.mark.parametrize(("oracle", "algorithm"), [("newton", "newton"), ("gradient", "ogd")])
@pytest.mark.parametrize(("m", "arms", "horizon"), [(10, 3, 2000), (52, 10, 2000)])
def test_regret_equals_that_of_the_published_code_within_three_standard_errors(oracle, algorithm, m, arms, horizon):
    (theirs,) = {
        (row.regret_mean, row.regret_std, row.rounds)
        for row in reference()
        if (row.m, row.K, row.T, row.algorithm) == (m, arms, horizon, algorithm)
    }
    problem = problem_of(m=m, arms=arms, horizon=horizon)
    regret = runs_of(Notebook(problem=problem, oracle=oracle), problem).regret(horizon / 2)
    error = np.sqrt(regret.var(ddof=1) / regret.size + theirs[1] ** 2 / theirs[2])
    assert abs(regret.mean() - theirs[0]) < 3 * error


@pytest.mark.parametrize("oracle", ["newton", "gradient"])
@pytest.mark.parametrize(("preset", "departures"), [("authors", PAPER_EXCEPT_GAMMA), ("paper", Departures.none())])
def test_without_departures_it_plays_what_the_preset_plays(oracle, preset, departures):
    problem = problem_of(horizon=300)
    squarecbwk = SquareCBwK(arms=3, dimension=10, resources=4, horizon=300, budget=75.0, preset=preset, oracle=oracle)
    ours = runs_of(Notebook(problem=problem, oracle=oracle, departures=departures), problem)
    theirs = runs_of(squarecbwk, problem)
    np.testing.assert_array_equal(ours.plays, theirs.plays)
    np.testing.assert_array_equal(ours.curve, theirs.curve)


def test_every_departure_is_on_by_default_and_off_in_none():
    assert all(getattr(Departures(), each.name) for each in fields(Departures))
    assert not any(getattr(Departures.none(), each.name) for each in fields(Departures))


def test_null_is_never_played_before_the_end_and_is_explored_without_the_departure():
    problem = problem_of(horizon=200)
    features = PaperEnvironment(m=10, arms=3).contexts[None]
    for departures, played in ((Departures(), False), (Departures.none(), True)):
        policy = Notebook(problem=problem, departures=departures)
        assert bool(policy.decide(policy.init(), features, [0.5]).probabilities[0, -1] > 0) is played


def test_a_run_ends_when_a_resource_has_less_than_2_left_or_2_rounds_before_the_horizon():
    features = PaperEnvironment(m=5, arms=1, resources=1).contexts[None]
    problem = problem_of(m=5, arms=1, resources=1, horizon=6, budget=4.0)
    policy = Notebook(problem=problem)

    def reasons(cost):
        state, seen = policy.init(), []
        for _ in range(6):
            choice = policy.decide(state, features, [0.5])
            seen.append(choice.reason[0])
            state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, [1.0], [[cost]])
        return seen

    assert reasons(1.0) == ["policy"] * 3 + [BUDGET_EXHAUSTED] + [ENDED] * 2
    assert reasons(0.0) == ["policy"] * 4 + [ENDED] * 2


def test_the_price_of_a_single_resource_never_moves_since_the_logarithm_of_1_is_0():
    problem = problem_of(m=5, arms=1, resources=1, horizon=100)
    features = PaperEnvironment(m=5, arms=1, resources=1).contexts[None]
    for departures, moves in ((Departures(), False), (Departures.none(), True)):
        _, state = after_one_outcome(Notebook(problem=problem, departures=departures), features, [1.0], [[1.0]])
        assert bool(state.log_weights.any()) is moves


def test_two_gradient_steps_equal_the_hand_calculation():
    # θ = (1, 1, 1, 1)/2 for both targets, and x = e_1, so both predictions are 1/2. The first step is 1.5, the second
    # is 1/√(99 + 1), both on twice the error.
    problem = problem_of(m=4, arms=1, resources=1, horizon=99, budget=50.0)
    features = np.eye(4)[None, :1]
    departures = replace(Departures(), joint_projection=False)
    policy = Notebook(problem=problem, oracle="gradient", departures=departures)
    _, state = after_one_outcome(policy, features, [0.4], [[0.5]])
    expected = np.full((4, 2), 0.5)
    expected[0, 0] -= 1.5 * 2 * 0.1
    np.testing.assert_allclose(state.theta[0], expected, rtol=1e-12)
    ticket = policy.decide(state, features, [0.5]).ticket
    state = policy.settle(policy.commit(state, ticket), ticket, [0.7], [[0.5]])
    expected[0, 0] += 0.1 * 2 * 0.5
    np.testing.assert_allclose(state.theta[0], expected, rtol=1e-12)


def test_without_its_departure_the_gradient_step_is_one_over_the_root_of_the_round():
    problem = problem_of(m=4, arms=1, resources=1, horizon=99, budget=50.0)
    departures = replace(Departures(), joint_projection=False, gradient_step=False)
    policy = Notebook(problem=problem, oracle="gradient", departures=departures)
    _, state = after_one_outcome(policy, np.eye(4)[None, :1], [0.4], [[0.5]])
    assert state.theta[0, 0, 0] == pytest.approx(0.5 - 0.1)


def test_one_dual_step_has_the_rate_two_log_d_over_root_t():
    problem = problem_of(horizon=400)
    features = PaperEnvironment(m=10, arms=3).contexts[None]
    costs = [[1.0, 0.5, 0.25, 0.0]]
    _, state = after_one_outcome(Notebook(problem=problem), features, [1.0], costs)
    steps = 2 * np.log(4) / 20 * (np.array(costs) - 0.25)
    np.testing.assert_allclose(state.log_weights, [[*steps[0], 0.0]], atol=1e-15)


def test_one_newton_step_equals_the_hand_calculation():
    # A = 2.25·I + e_1 e_1ᵀ, so that A⁻¹ x = e_1 / 3.25; three times that, times the error 1/2 - 0.6.
    problem = problem_of(m=4, arms=1, resources=1, horizon=99, budget=50.0)
    policy = Notebook(problem=problem, departures=replace(Departures(), joint_projection=False))
    _, state = after_one_outcome(policy, np.eye(4)[None, :1], [0.5], [[0.4]])
    expected = np.full((4, 2), 0.5)
    expected[0, 1] -= 3.0 / 3.25 * 0.1
    np.testing.assert_allclose(state.theta[0], expected, rtol=1e-12)


def test_all_parameters_together_stay_in_the_unit_ball_and_none_is_negative():
    rng = np.random.default_rng(3)
    problem = problem_of(horizon=500)
    for oracle in ("newton", "gradient"):
        policy = Notebook(problem=problem, oracle=oracle)
        state = policy.init(lanes=4)
        for _ in range(50):
            features = rng.standard_normal((4, 3, 10)) / 3.0
            ticket = policy.decide(state, features, rng.random(4)).ticket
            state = policy.settle(policy.commit(state, ticket), ticket, rng.normal(size=4), rng.normal(size=(4, 4)))
            assert (np.sqrt(np.square(state.theta).sum(axis=(1, 2))) <= 1 + 1e-12).all()
            assert (state.theta >= 0).all()


@pytest.mark.parametrize(
    ("change", "named"), [({"oracle": "Newton "}, "oracle"), ({"problem": problem_of(budget=[1, 2, 3, 4])}, "budgets")]
)
def test_unsupported_options_are_refused(change, named):
    with pytest.raises(ValueError, match=named):
        Notebook(**{"problem": problem_of(), **change})
