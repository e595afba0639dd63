from dataclasses import dataclass, field

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.baselines import EpsilonGreedy, LinUCB, Thompson, Throttle
from cbwk_core.problem import Problem
from cbwk_core.simulation import Delays, LinearEnvironment, PaperEnvironment, run
from cbwk_core.simulation.runner import CHUNK_ROUNDS
from cbwk_core.ticket import BUDGET_EXHAUSTED, NULL_ARM, POLICY, Choice, Ticket

SHARED = LinearEnvironment(arms=3, dimension=4, resources=2)
PER_ARM = LinearEnvironment(arms=3, dimension=4, resources=2, model="per_arm")
LATE = Delays(rounds=7, varying=True, missing=0.2, seed=5)


def problem_for(environment, horizon, rho=0.3):
    return Problem.of(
        arms=environment.arms,
        dimension=environment.dimension,
        resources=environment.resources,
        horizon=horizon,
        budget=rho * horizon,
    )


@dataclass
class Recorder:
    """A policy that maps its uniform to an arm and records all calls. Its state is the round number."""

    arms: int
    resources: int
    model: str = "shared"
    exhausted_from: int | None = None
    seen: list = field(default_factory=list)
    settled: list = field(default_factory=list)
    refreshed: list = field(default_factory=list)

    def init(self, lanes=1):
        return 0

    def decide(self, state, features, uniforms):
        rows = len(uniforms)
        over = self.exhausted_from is not None and state >= self.exhausted_from
        column = np.full(rows, self.arms) if over else (uniforms * (self.arms + 1)).astype(int)
        arm = np.where(column == self.arms, NULL_ARM, column)
        self.seen.append((features.copy(), uniforms.copy(), arm))
        flat = np.full((rows, self.arms + 1), 1 / (self.arms + 1))
        zeros = np.zeros((rows, self.resources))
        ticket = Ticket.of(
            arm=arm,
            features=np.zeros((rows, 1)),
            reward=zeros[:, 0],
            costs=zeros,
            rho=zeros,
            value=zeros[:, 0],
            round=np.full(rows, state),
            hold=zeros,
        )
        return Choice(arm, flat[:, 0], flat, (BUDGET_EXHAUSTED if over else POLICY,) * rows, ticket)

    def commit(self, state, ticket):
        assert (ticket.round == state).all()
        return state + 1

    def settle(self, state, tickets, rewards, costs, learn=True):
        self.settled.append((state, int(tickets.round[0]), tickets.arm, rewards, costs, learn))
        return state

    def cancel(self, state, tickets):
        raise AssertionError("the runner never cancels")

    def refresh_due(self, state):
        return state % 10 == 0

    def refresh(self, state):
        self.refreshed.append(state)
        return state


def recorded(environment=SHARED, horizon=150, seeds=(3, 4), **options):
    policy = Recorder(environment.arms, environment.resources, environment.model)
    runs = run(policy, environment, horizon=horizon, budget=10.0, seeds=seeds, **options)
    return policy, runs


def policies():
    for environment in (SHARED, PER_ARM, PaperEnvironment(m=6, arms=4)):
        problem = problem_for(environment, 120)
        common = {"problem": problem, "model": environment.model}
        greedy = EpsilonGreedy(**common, epsilon=0.2)
        sizes = {name: getattr(problem, name) for name in ("arms", "dimension", "resources", "horizon", "budget")}
        square = SquareCBwK(**sizes, model=environment.model)
        for policy in (square, LinUCB(**common), greedy, Thompson(**common), Throttle(policy=greedy, problem=problem)):
            yield pytest.param(
                policy, environment, id=f"{type(policy).__name__}-{type(environment).__name__}-{environment.model}"
            )


@pytest.mark.parametrize("delays", [None, LATE], ids=["prompt", "late"])
@pytest.mark.parametrize(("policy", "environment"), list(policies()))
def test_a_lane_does_not_depend_on_the_other_lanes(policy, environment, delays):
    together = run(policy, environment, horizon=120, budget=36.0, seeds=[11, 12, 13], delays=delays)
    alone = [run(policy, environment, horizon=120, budget=36.0, seeds=[seed], delays=delays) for seed in (11, 12, 13)]
    for name in ("reward", "realised", "spent", "overspend", "plays", "curve"):
        separate = np.concatenate([getattr(runs, name) for runs in alone])
        np.testing.assert_allclose(getattr(together, name), separate, rtol=0, atol=1e-9, err_msg=name)


def test_sums_equal_those_of_a_simple_loop_over_the_same_rounds():
    policy, runs = recorded(horizon=CHUNK_ROUNDS + 10)
    for lane, seed in enumerate((3, 4)):
        outcomes, uniforms, _ = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
        reward = realised = 0.0
        spent, plays = np.zeros(2), np.zeros(4, dtype=int)
        for t in range(CHUNK_ROUNDS + 10):
            draw = SHARED.draw(outcomes, t, 1)
            features, u, arms = policy.seen[t]
            assert u[lane] == uniforms.random()
            np.testing.assert_allclose(features[lane], draw.features[0])
            arm = arms[lane]
            plays[arm] += 1
            if arm != NULL_ARM:
                reward += draw.mean_reward[0, arm]
                realised += draw.reward[0, arm]
                spent += draw.costs[0, arm]
        assert runs.reward[lane] == pytest.approx(reward)
        assert runs.realised[lane] == pytest.approx(realised)
        assert runs.spent[lane] == pytest.approx(spent)
        assert runs.overspend[lane] == pytest.approx(np.maximum(spent - 10.0, 0))
        assert runs.plays[lane].tolist() == plays.tolist()
        assert runs.played[lane] == plays[:-1].sum()
        assert runs.regret(100.0)[lane] == pytest.approx(100.0 - reward)


def test_every_policy_gets_the_same_contexts_and_uniforms():
    recorder, _ = recorded()
    seen = []

    class Watched(EpsilonGreedy):
        def decide(self, state, features, uniforms):
            seen.append((features.copy(), uniforms.copy()))
            return super().decide(state, features, uniforms)

    run(Watched(problem=problem_for(SHARED, 150, rho=1.0)), SHARED, horizon=150, budget=10.0, seeds=[3, 4])
    for (features, uniforms, _), (other_features, other_uniforms) in zip(recorder.seen, seen, strict=True):
        np.testing.assert_array_equal(features, other_features)
        np.testing.assert_array_equal(uniforms, other_uniforms)


def test_without_delays_a_round_is_settled_before_the_next_is_decided():
    policy, _ = recorded()
    assert [(state, committed) for state, committed, *_ in policy.settled] == [(t + 1, t) for t in range(150)]
    assert all(learn is True for *_, learn in policy.settled)


def test_null_earns_and_costs_nothing():
    policy, _ = recorded()
    for _, _, arm, rewards, costs, _ in policy.settled:
        assert (rewards[arm == NULL_ARM] == 0).all()
        assert (costs[arm == NULL_ARM] == 0).all()
        assert (costs[arm != NULL_ARM] > 0).all()


@pytest.mark.parametrize("delays", [Delays(rounds=5), LATE])
def test_every_outcome_is_settled_once_when_its_delay_is_over(delays):
    policy, _ = recorded(delays=delays)
    delay = delays.per_round(150)
    assert sorted(committed for _, committed, *_ in policy.settled) == list(range(150))
    for state, committed, *_ in policy.settled:
        assert state == min(committed + delay[committed] + 1, 150)


@dataclass
class HalvesRecorder(Recorder):
    """A recorder that is taught; `learns_costs_first` says in which halves."""

    learns_costs_first: bool = True
    taught: list = field(default_factory=list)

    def teach(self, state, tickets, rewards, costs, learn_reward=True, learn_costs=True):
        self.taught.append((state, int(tickets.round[0]), rewards, costs, learn_reward, learn_costs))
        return state


@pytest.mark.parametrize("first", [True, False])
def test_costs_at_once_are_settled_in_their_round_and_rewards_are_taught_when_their_delay_is_over(first):
    policy, prompt = HalvesRecorder(SHARED.arms, SHARED.resources, learns_costs_first=first), recorded()[0]
    delays = Delays(rounds=7, varying=True, seed=5, costs_at_once=True)
    run(policy, SHARED, horizon=150, budget=10.0, seeds=(3, 4), delays=delays)
    assert [(state, committed) for state, committed, *_ in policy.settled] == [(i + 1, i) for i in range(150)]
    for late, mine in zip(policy.settled, prompt.settled, strict=True):
        np.testing.assert_array_equal(late[4], mine[4])  # costs
        assert late[5] is False  # learn
    delay, rewards = delays.per_round(150), [each for each in policy.taught if each[4]]
    assert sorted(committed for _, committed, *_ in rewards) == list(range(150))
    assert all(state == min(committed + delay[committed] + 1, 150) for state, committed, *_ in rewards)
    assert all(learn_costs is not first for *_, learn_costs in rewards)
    costs = [(state, committed, learn) for state, committed, _, _, is_reward, learn in policy.taught if not is_reward]
    assert costs == ([(i + 1, i, True) for i in range(150)] if first else [])


def test_a_policy_that_cannot_be_taught_apart_from_settling_has_no_costs_at_once():
    with pytest.raises(ValueError, match="costs_at_once needs a policy that has `teach`, got Recorder"):
        recorded(delays=Delays(rounds=3, costs_at_once=True))


def test_delays_change_the_time_of_outcomes_and_not_their_values():
    prompt, prompt_runs = recorded()
    late, late_runs = recorded(delays=LATE)
    outcomes = {committed: (rewards, costs) for _, committed, _, rewards, costs, _ in prompt.settled}
    for _, committed, _, rewards, costs, _ in late.settled:
        np.testing.assert_array_equal(rewards, outcomes[committed][0])
        np.testing.assert_array_equal(costs, outcomes[committed][1])
    np.testing.assert_array_equal(prompt_runs.spent, late_runs.spent)


def test_missing_outcomes_are_the_given_share_differ_by_lane_and_are_booked_without_learning():
    policy, runs = recorded(horizon=2000, delays=Delays(missing=0.3))
    learn = np.array([learn for *_, learn in policy.settled])
    assert learn.shape == (2000, 2)
    assert np.abs((1 - learn.mean(axis=0)) - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 2000)
    assert (learn[:, 0] != learn[:, 1]).any()
    assert runs.spent == pytest.approx(sum(costs for _, _, _, _, costs, _ in policy.settled))


def test_a_policy_is_refreshed_when_a_refresh_is_due():
    policy, _ = recorded(horizon=35)
    assert policy.refreshed == [10, 20, 30]


def test_a_run_stops_early_only_if_budgets_are_exhausted_and_no_outcome_is_pending():
    policy = Recorder(3, 2, exhausted_from=40)
    run(policy, SHARED, horizon=100, budget=10.0, seeds=[1, 2])
    assert len(policy.seen) == 41
    policy = Recorder(3, 2, exhausted_from=40)
    run(policy, SHARED, horizon=100, budget=10.0, seeds=[1, 2], delays=Delays(rounds=6))
    assert len(policy.seen) == 100  # outcomes of null rounds are delayed, too
    assert len(policy.settled) == 100


class NeverExhausted(EpsilonGreedy):
    """Never reports that its budget is exhausted."""

    def decide(self, state, features, uniforms):
        return super().decide(state, features, uniforms)._replace(reason=(POLICY,) * len(uniforms))


def test_a_run_that_stops_early_equals_one_that_plays_all_rounds():
    problem = problem_for(SHARED, 300, rho=0.1)
    reported = []
    early = run(
        EpsilonGreedy(problem=problem),
        SHARED,
        horizon=300,
        budget=30.0,
        seeds=[1, 2],
        progress=lambda *a: reported.append(a),
    )
    late = run(NeverExhausted(problem=problem), SHARED, horizon=300, budget=30.0, seeds=[1, 2])
    assert reported[-1][0] < 300
    for name in early._fields:
        np.testing.assert_array_equal(getattr(early, name), getattr(late, name), err_msg=name)


@pytest.mark.parametrize("horizon", [1, 50, 199, 200, 201, 1000])
def test_a_curve_is_thinned_and_ends_at_the_reward(horizon):
    _, runs = recorded(horizon=horizon)
    assert runs.curve_rounds.size == min(horizon, 200)
    assert runs.curve_rounds[-1] == horizon
    assert (np.diff(runs.curve) >= 0).all()
    np.testing.assert_allclose(runs.curve[:, -1], runs.reward)


def test_a_point_of_the_curve_is_the_reward_of_a_shorter_run():
    policy = EpsilonGreedy(problem=problem_for(SHARED, 1000))
    runs = run(policy, SHARED, horizon=1000, budget=300.0, seeds=[1, 2])
    shorter = run(policy, SHARED, horizon=int(runs.curve_rounds[77]), budget=300.0, seeds=[1, 2])
    np.testing.assert_allclose(runs.curve[:, 77], shorter.reward, rtol=0, atol=1e-9)


def test_progress_is_reported_up_to_the_horizon():
    reported = []
    recorded(horizon=150, progress=lambda done, of: reported.append((done, of)))
    assert [of for _, of in reported] == [150] * len(reported)
    assert [done for done, _ in reported] == sorted({done for done, _ in reported})
    assert reported[-1] == (150, 150)


def test_a_policy_for_another_problem_is_refused():
    with pytest.raises(ValueError, match="arms must be equal, got 4 in the policy and 3"):
        run(Recorder(4, 2), SHARED, horizon=10, budget=1.0, seeds=[1])
    with pytest.raises(ValueError, match="model must be equal"):
        run(Recorder(3, 2), PER_ARM, horizon=10, budget=1.0, seeds=[1])
    with pytest.raises(ValueError, match="at least one round and one seed"):
        run(Recorder(3, 2), SHARED, horizon=10, budget=1.0, seeds=[])


@pytest.mark.parametrize(
    ("options", "message"), [({"rounds": -1}, "rounds must not"), ({"missing": 1.5}, "missing must lie")]
)
def test_invalid_delays_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Delays(**options)
