"""One row of one lane in plain floats (`single`) against the same row in arrays (`round`): arms, numbers, states."""

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbwk_core import NULL_ARM, Choice, SquareCBwK
from cbwk_core.oracles import Newton
from cbwk_core.presets import BLIND_COUNT, PRESETS
from cbwk_core.rules.pace import is_late
from cbwk_core.single import CANDIDATES_MAX, Single, serves
from cbwk_core.ticket import Ticket

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@st.composite
def policies(draw, horizon=300):
    """Policies that `single` serves, with unequal budgets and max costs, some with γ or forgetting set."""
    arms = draw(st.integers(1, 12) | st.just(CANDIDATES_MAX + 8))
    dimension, resources = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    model, option = draw(st.sampled_from(["shared", "per_arm"])), draw(st.sampled_from(["", "", "gamma", "forgetting"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    max_cost = rng.uniform(0.2, 3.0, (arms, resources))
    share = draw(st.sampled_from([0.05, 0.3, 1.0]))
    return SquareCBwK(
        arms=arms,
        dimension=dimension,
        resources=resources,
        horizon=horizon,
        budget=horizon * share * rng.uniform(0.5, 1.0, resources) * max_cost.max(axis=0),
        max_cost=max_cost,
        model=model,
        **{"gamma": {"gamma": 7.5}, "forgetting": {"forgetting": 0.9}}.get(option, {}),
    )


def features_of(policy, rng, rows=1):
    shape = (rows, policy.arms, policy.dimension) if policy.model == "shared" else (rows, policy.dimension)
    return rng.uniform(-0.3, 1.0, shape)


def outcome_of(policy, rng, rows=1):
    """Rewards and costs that also leave their nominal ranges."""
    costs = rng.uniform(-0.1, 1.2, (rows, policy.resources)) * policy.problem.unit
    return rng.uniform(-0.2, 1.2, rows), costs


def assert_same_choice(one, other):
    """Row 0 of both is the same decision."""
    assert one.arm[0] == other.arm[0]
    assert one.reason[0] == other.reason[0]
    assert one.ticket.arm[0] == other.ticket.arm[0]
    np.testing.assert_allclose(one.probability[0], other.probability[0], **CLOSE)
    np.testing.assert_allclose(one.probabilities[0], other.probabilities[0], **CLOSE)
    np.testing.assert_allclose(one.ticket.numbers[0], other.ticket.numbers[0], **CLOSE)
    np.testing.assert_array_equal(one.ticket.features[0], other.ticket.features[0])


def assert_same_state(one, other):
    """Lane 0 of both knows the same."""
    np.testing.assert_allclose(one.books[0], other.books[0], **CLOSE)
    np.testing.assert_allclose(one.residuals[0], other.residuals[0], **CLOSE)
    np.testing.assert_allclose(one.oracle.solution[0], other.oracle.solution[0], **CLOSE)
    for mine, others in zip(one.oracle.gram, other.oracle.gram, strict=True):
        np.testing.assert_allclose(mine[0], others[0], **CLOSE)
    np.testing.assert_array_equal(one.oracle.updates[0], other.oracle.updates[0])


def repeated(rows, *arrays):
    return [np.repeat(array, rows, axis=0) for array in arrays]


def in_two_lanes(*arrays):
    return repeated(2, *arrays)


@dataclass
class Twins:
    """One lane, served by `single`, and two equal lanes, served by `round`, through the same play."""

    policy: SquareCBwK
    rng: np.random.Generator
    one: object = None
    two: object = None
    open: list = field(default_factory=list)

    def __post_init__(self):
        self.one, self.two = self.policy.init(), self.policy.init(lanes=2)

    def decide(self):
        x, uniform = features_of(self.policy, self.rng), self.rng.random(1)
        single = self.policy.decide(self.one, x, uniform)
        rows = self.policy.decide(self.two, *in_two_lanes(x, uniform))
        assert_same_choice(single, rows)
        self.one, self.two = self.policy.commit(self.one, single.ticket), self.policy.commit(self.two, rows.ticket)
        self.open.append((single.ticket, rows.ticket))

    def settle(self):
        tickets, learn = self.open.pop(self.rng.integers(len(self.open))), bool(self.rng.random() < 0.8)
        outcome = outcome_of(self.policy, self.rng)
        self.one = self.policy.settle(self.one, tickets[0], *outcome, learn=learn)
        self.two = self.policy.settle(self.two, tickets[1], *in_two_lanes(*outcome), learn=learn)

    def cancel(self):
        tickets = self.open.pop(self.rng.integers(len(self.open)))
        self.one, self.two = self.policy.cancel(self.one, tickets[0]), self.policy.cancel(self.two, tickets[1])

    def learn(self):
        x, arm = features_of(self.policy, self.rng), self.rng.integers(-1, self.policy.arms, 1)
        outcome = outcome_of(self.policy, self.rng)
        self.one = self.policy.learn(self.one, x, arm, *outcome)
        self.two = self.policy.learn(self.two, *in_two_lanes(x, arm, *outcome))

    def play(self, steps):
        """Any order, settled late or not at all."""
        for _ in range(steps):
            moves = [self.decide, self.learn, *([self.settle, self.settle, self.cancel] if self.open else [])]
            moves[self.rng.integers(len(moves))]()


@settings(max_examples=60)
@given(policies(), st.integers(0, 2**32 - 1))
def test_one_lane_and_two_equal_lanes_stay_equal_through_any_play(policy, seed):
    twins = Twins(policy, np.random.default_rng(seed))
    twins.play(40)
    assert_same_state(twins.one, twins.two)


def two_lanes_of(state):
    """Two lanes, both equal to the only lane of a state of the newton oracle."""
    gram = tuple(np.repeat(each, 2, axis=0) for each in state.oracle.gram)
    others = {name: np.repeat(part, 2, axis=0) for name, part in state.oracle._asdict().items() if name != "gram"}
    books, residuals = repeated(2, state.books, state.residuals)
    oracle = type(state.oracle)(gram=gram, **others)
    return state._replace(books=books, residuals=residuals, oracle=oracle)


def late(policy, state, rng):
    """Outcomes took up to three times the rounds that are left; all that is known of is settled, or some is open."""
    delay = rng.uniform(0.0, 3.0) * (policy.horizon - state.round[0])
    state = state.replaced(settled=7.0, waited=7.0 * delay)
    return state if rng.random() < 0.5 else state.replaced(opened=0.0, held=0.0, predicted=0.0)


def nothing_free(policy, state, rng):
    """All that is left is held."""
    return state.replaced(held=np.array(policy.budget) - state.spent)


def nothing_left(policy, state, rng):
    """More was spent than there was."""
    return state.replaced(spent=np.array(policy.budget) * rng.uniform(1.0, 1.1, policy.resources))


CONDITIONS = {
    "as it is": lambda policy, state, rng: state,
    "late": late,
    "blind": lambda policy, state, rng: state.replaced(opened=BLIND_COUNT, settled=rng.integers(BLIND_COUNT)),
    "nothing free": nothing_free,
    "nothing left": nothing_left,
    "the last round": lambda policy, state, rng: state.replaced(round=policy.horizon - 1.0),
    "late in the last round": lambda policy, state, rng: late(policy, state, rng).replaced(round=policy.horizon - 1.0),
    "after the horizon": lambda policy, state, rng: state.replaced(round=float(policy.horizon)),
}


@settings(max_examples=150)
@given(policies(), st.integers(0, 2**32 - 1), st.sampled_from(sorted(CONDITIONS)), st.booleans(), st.booleans())
def test_one_row_by_single_and_the_same_row_by_round_are_equal_in_every_condition(
    policy, seed, condition, retires, forgets
):
    rng = np.random.default_rng(seed)
    twins = Twins(policy, rng)
    twins.play(20)
    one = CONDITIONS[condition](policy, twins.one, rng)
    if forgets:  # as after a change of the world
        noticed = one.oracle.noticed.copy()
        noticed[:, :2] += rng.integers(1, 9)
        one = one._replace(oracle=one.oracle._replace(noticed=noticed))
    if retires and policy.arms > 1:
        newer = replace(policy, retired=(int(rng.integers(policy.arms)),))
        policy, one = newer, newer.adopt(policy, one)
    two = two_lanes_of(one)
    x, uniform = features_of(policy, rng), rng.random(1)
    choice, both = policy.decide(one, x, uniform), policy.decide(two, *in_two_lanes(x, uniform))
    assert_same_choice(choice, both)
    assert_same_choice(choice, policy.decide(one, x, uniform, exclude=np.zeros((1, policy.arms), dtype=bool)))
    outcome, learn = outcome_of(policy, rng), bool(rng.random() < 0.8)
    committed, both_committed = policy.commit(one, choice.ticket), policy.commit(two, both.ticket)
    assert_same_state(committed, both_committed)
    assert_same_state(
        policy.settle(committed, choice.ticket, *outcome, learn=learn),
        policy.settle(both_committed, both.ticket, *in_two_lanes(*outcome), learn=learn),
    )
    arm = rng.integers(-1, policy.arms, 1)
    assert_same_state(policy.learn(one, x, arm, *outcome), policy.learn(two, *in_two_lanes(x, arm, *outcome)))


@settings(max_examples=60)
@given(policies(), st.integers(0, 2**32 - 1), st.booleans())
def test_a_decision_alone_equals_the_first_of_two_decisions(policy, seed, with_free):
    rng = np.random.default_rng(seed)
    twins = Twins(policy, rng)
    twins.play(25)
    free = rng.integers(0, 40, policy.resources) if with_free else None
    for _ in range(10):
        x, uniforms = features_of(policy, rng, 2), rng.random(2)
        alone = policy.decide(twins.one, x[:1], uniforms[:1], free=free)
        assert_same_choice(alone, policy.decide(twins.one, x, uniforms, free=free))


def test_null_decisions_among_several_hold_and_teach_nothing():
    policy = base(model="per_arm")
    state = policy.init()
    for _ in range(60):  # everything costs and nothing earns
        choice = policy.decide(state, X[:, 0], np.array([0.5]))
        state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, [-1.0], [[1.0, 2.0]])
    choice = policy.decide(state, X[0], np.array([0.1, 0.2, 0.999]))
    null = choice.arm == NULL_ARM
    assert null.any()
    assert not choice.ticket.hold[null].any()
    assert not choice.ticket.costs[null].any()
    assert not choice.ticket.features[null].any()
    assert choice.ticket.rho[null].all()


@settings(max_examples=60)
@given(policies(), st.integers(0, 2**32 - 1))
def test_learning_one_outcome_equals_commit_then_settle_of_its_ticket(policy, seed):
    rng = np.random.default_rng(seed)
    twins = Twins(policy, rng)
    twins.play(15)
    state = twins.one
    for _ in range(5):
        x = features_of(policy, rng)
        choice, outcome = policy.decide(state, x, rng.random(1)), outcome_of(policy, rng)
        learnt = policy.learn(state, x, choice.arm, *outcome)
        settled = policy.settle(policy.commit(state, choice.ticket), choice.ticket, *outcome)
        assert_same_state(learnt, settled)
        state = learnt


@settings(max_examples=40)
@given(policies(), st.integers(0, 2**32 - 1))
def test_tickets_settled_or_cancelled_one_by_one_leave_the_state_of_all_at_once(policy, seed):
    rng = np.random.default_rng(seed)
    twins = Twins(policy, rng)
    twins.play(10)
    choice = policy.decide(twins.one, features_of(policy, rng, 4), rng.random(4))
    rewards, costs = outcome_of(policy, rng, 4)
    committed = policy.commit(twins.one, choice.ticket)
    joined = policy.settle(committed, choice.ticket, rewards, costs)
    void = policy.cancel(committed, choice.ticket)
    alone, alone_void = twins.one, committed
    for row in range(4):
        alone = policy.commit(alone, choice.ticket.rows(slice(row, row + 1)))
    assert_same_state(alone, committed)
    for row in range(4):
        part = slice(row, row + 1)
        alone = policy.settle(alone, choice.ticket.rows(part), rewards[part], costs[part])
        alone_void = policy.cancel(alone_void, choice.ticket.rows(part))
    assert_same_state(alone, joined)
    assert_same_state(alone_void, void)


def test_single_serves_a_projected_newton_oracle_to_the_same_state():
    oracle = Newton(dimension=4, targets=3, blocks=2, radius=0.5)
    policy = SquareCBwK(
        arms=2, dimension=3, resources=2, horizon=300, budget=[100, 80], oracle=oracle, model="per_arm", max_cost=2.0
    )
    twins = Twins(policy, np.random.default_rng(7))
    twins.play(60)
    assert serves(policy)
    assert np.linalg.norm(twins.one.oracle.theta[0], axis=0).max() > 0.49
    assert_same_state(twins.one, twins.two)


BASE = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 1000, "budget": [300.0, 500.0], "max_cost": [1.0, 2.0]}
X, U = np.random.default_rng(3).random((1, 3, 2)), np.array([0.4])
OUTCOME = np.array([0.7]), np.array([[0.5, 1.1]])
FIRST = np.array([1])


def base(**other):
    return SquareCBwK(**{**BASE, **other})


def at_the_horizon(policy):
    state = policy.init()
    for _ in range(policy.horizon):
        state = policy.commit(state, policy.decide(state, X, U).ticket)
    return state


def blind(policy):
    """A state with BLIND_COUNT decisions open and one less settled."""
    state = policy.init()
    for count in range(2 * BLIND_COUNT - 1):
        ticket = policy.decide(state, X, np.zeros(1)).ticket
        state = policy.commit(state, ticket)
        if count < BLIND_COUNT - 1:
            state = policy.settle(state, ticket, *OUTCOME)
    return state


@pytest.mark.parametrize("model", ["shared", "per_arm"])
@pytest.mark.parametrize("free", [None, np.array([1.0, 2.0]), np.array([1, 2]), np.array([1, 2], dtype=np.uint16)])
def test_single_answers_and_learns_a_request_that_needs_no_mask(model, free):
    policy = base(model=model)
    x = X if model == "shared" else X[:, 0]
    assert isinstance(Single(policy).decide(policy.init(), x, U, free), Choice)
    assert Single(policy).learn(policy.init(), x, FIRST, *OUTCOME) is not None


@pytest.mark.parametrize(("lanes", "rows"), [(1, 1), (1, 2), (2, 2)])
def test_single_serves_one_row_of_one_lane_and_round_serves_other_rows(lanes, rows, monkeypatch):
    policy, calls = base(), []
    for name in ("commit", "settle", "teach"):
        monkeypatch.setattr(Single, name, recording(calls, name, getattr(Single, name)))
    state, (x, uniforms, *outcome) = policy.init(lanes), repeated(rows, X, U, *OUTCOME)
    ticket = policy.decide(state, x, uniforms).ticket
    policy.teach(policy.settle(policy.commit(state, ticket), ticket, *outcome, learn=False), ticket, *outcome)
    assert calls == (["commit", "settle", "teach"] if rows == 1 else [])


def recording(calls, name, method):
    """The method, which adds its name to the calls that it serves."""

    def recorded(*arguments):
        after = method(*arguments)
        calls.extend([] if after is None else [name])
        return after

    return recorded


def test_single_answers_any_number_of_candidates_up_to_its_limit():
    policy, rng = base(), np.random.default_rng(1)
    for candidates in (1, 2, CANDIDATES_MAX):
        x = rng.random((1, candidates, 2))
        choice = Single(policy).decide(policy.init(), x, U, None)
        assert choice.probabilities.shape == (1, candidates + 1)
        assert_same_choice(choice, policy.decide(policy.init(), *in_two_lanes(x, U)))


TWO = {"features": np.concatenate([X, X]), "uniforms": np.array([0.4, 0.5])}
PASSED_ON = {
    "a list of features": (base(), {"features": X.tolist()}),
    "single precision": (base(), {"features": X.astype(np.float32)}),
    "a list of uniforms": (base(), {"uniforms": [0.4]}),
    "free as a list of floats": (base(), {"free": [5.0, 5.0]}),
    "more candidates than the limit": (base(), {"features": np.ones((1, CANDIDATES_MAX + 1, 2))}),
    "two requests": (base(), TWO),
    "too little free": (base(), {"free": np.array([0.9, 5.0])}),
    "too little in the account": (base(budget=[0.9, 5.0]), {}),
    "the horizon reached": (base(horizon=2), {"state": at_the_horizon}),
    "a blind state": (base(), {"state": blind}),
}


@pytest.mark.parametrize(("policy", "changed"), PASSED_ON.values(), ids=PASSED_ON)
def test_single_passes_on_a_request_that_it_cannot_answer_and_round_answers_it(policy, changed):
    asked = {"features": X, "uniforms": U, "free": None, **changed}
    state = asked.pop("state", SquareCBwK.init)(policy)
    assert Single(policy).decide(state, **asked) is None
    choice = policy.decide(state, **asked)
    np.testing.assert_allclose(choice.probabilities.sum(axis=1), 1.0, rtol=1e-12)


NOT_SERVED = {
    "retired arms": {"retired": (1,)},
    "a logistic link": {"link": "logistic"},
    "another oracle": {"oracle": "gradient"},
    "paper": {"preset": "paper"},
    "authors": {"preset": "authors"},
}


@pytest.mark.parametrize("changed", NOT_SERVED.values(), ids=NOT_SERVED)
def test_round_answers_and_learns_for_a_policy_that_single_does_not_serve(changed):
    policy = base(**changed)
    assert not serves(policy)
    choice = policy.decide(policy.init(), X, U)
    np.testing.assert_allclose(choice.probabilities.sum(axis=1), 1.0, rtol=1e-12)
    assert policy.learn(policy.init(), X, np.array([2]), *OUTCOME).round[0] == 1


REFUSED = {
    "features that are not numbers": ({"features": np.full((1, 3, 2), np.nan)}, "features"),
    "infinite features": ({"features": np.full((1, 3, 2), -np.inf)}, "features"),
    "features of another dimension": ({"features": np.ones((1, 3, 3))}, "features"),
    "no candidates": ({"features": np.ones((1, 0, 2))}, "features"),
    "a uniform of one": ({"uniforms": np.array([1.0])}, "uniforms"),
    "a uniform that is not a number": ({"uniforms": np.array([np.nan])}, "uniforms"),
    "one of two uniforms that is not a number": (TWO | {"uniforms": np.array([0.5, np.nan])}, "uniforms"),
    "a uniform in letters": ({"uniforms": np.array(["0.5"])}, "uniforms"),
    "infinite money": ({"free": np.array([np.inf, 5.0])}, "free"),
    "money that is not a number": ({"free": np.array([np.nan, 5.0])}, "free"),
    "money of other resources": ({"free": np.array([5.0])}, "free"),
}


@pytest.mark.parametrize(("changed", "name"), REFUSED.values(), ids=REFUSED)
def test_single_passes_on_a_wrong_argument_and_the_policy_refuses_it_by_name(changed, name):
    policy, asked = base(), {"features": X, "uniforms": U, "free": None, **changed}
    assert Single(policy).decide(policy.init(), **asked) is None
    with pytest.raises(ValueError, match=name):
        policy.decide(policy.init(), **asked)


NOT_LEARNT_BY_SINGLE = {
    "a list of rewards": {"rewards": [0.7]},
    "a list of costs": {"costs": [[0.5, 1.1]]},
    "a list of arms": {"arm": [1]},
    "a null decision": {"arm": np.array([NULL_ARM])},
    "two rows": {
        "features": np.concatenate([X, X]),
        "arm": np.array([0, 1]),
        "rewards": np.ones(2),
        "costs": np.ones((2, 2)),
    },
}


@pytest.mark.parametrize("changed", NOT_LEARNT_BY_SINGLE.values(), ids=NOT_LEARNT_BY_SINGLE)
def test_round_learns_an_outcome_that_single_passes_on(changed):
    policy, given_to = base(), {"features": X, "arm": FIRST, "rewards": OUTCOME[0], "costs": OUTCOME[1], **changed}
    assert Single(policy).learn(policy.init(), **given_to) is None
    assert policy.learn(policy.init(), **given_to).round[0] == len(given_to["rewards"])


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"features": X * np.nan}, "features"),
        ({"rewards": np.array([np.nan])}, "rewards"),
        ({"costs": np.array([[np.inf, 1.0]])}, "costs"),
        ({"costs": np.array([[1.0]])}, "costs"),
        ({"arm": np.array([3])}, "arm"),
        ({"arm": np.array([-2])}, "arm"),
    ],
)
def test_single_passes_on_a_wrong_outcome_and_the_policy_refuses_it_by_name(changed, name):
    policy, given_to = base(), {"features": X, "arm": FIRST, "rewards": OUTCOME[0], "costs": OUTCOME[1], **changed}
    assert Single(policy).learn(policy.init(), **given_to) is None
    with pytest.raises(ValueError, match=name):
        policy.learn(policy.init(), **given_to)


def test_the_settlement_of_a_null_decision_counts_and_teaches_nothing():
    policy = base()
    nothing = policy.decide(policy.init(), X, U, free=np.zeros(2)).ticket
    settled = policy.settle(policy.commit(policy.init(), nothing), nothing, *OUTCOME)
    assert settled.settled[0] == settled.learnt[0] == settled.spent.sum() == 0.0


@pytest.mark.parametrize(
    ("uniform", "arm"), [(0.0, 0), (0.5 - 2**-54, 0), (0.5, 1), (0.75 - 2**-53, 1), (0.75, 2), (1.0 - 2**-53, 2)]
)
def test_a_uniform_on_the_edge_between_two_arms_draws_the_second(uniform, arm):
    policy = base()  # three arms of equal worth: ½ for the first, ¼ for the others, null last with 0
    assert Single(policy).decide(policy.init(), X, np.array([uniform]), None).arm[0] == arm
    assert policy.decide(policy.init(), *in_two_lanes(X, np.array([uniform]))).arm[0] == arm


def test_leverage_that_rounding_made_negative_counts_as_zero():
    policy = base()
    state = policy.init()
    states = []
    for leverage in (-1e-17, 0.0):
        solution = state.oracle.solution.copy()
        solution[0, 0, :3] = leverage * np.eye(3)
        states.append(state._replace(oracle=state.oracle._replace(solution=solution)))
    negative, zero = states
    choice = Single(policy).decide(negative, X, U, None)
    np.testing.assert_allclose(choice.probabilities.sum(), 1.0)
    for other in (policy.decide(negative, *repeated(2, X, U)), policy.decide(zero, X, U)):
        assert_same_choice(choice, other)


def test_the_arrays_of_a_choice_are_read_only_from_single_and_from_round():
    policy = base()
    for choice in (policy.decide(policy.init(), X, U), policy.decide(policy.init(), *in_two_lanes(X, U))):
        ticket: Ticket = choice.ticket
        handed_out = (*choice[:3], ticket.arm, ticket.features, ticket.numbers)
        assert not any(array.flags.writeable for array in handed_out)


@pytest.mark.parametrize("lanes", [2, 5])
def test_lanes_are_independent_runs_side_by_side(lanes):
    for preset, model in product(PRESETS, ("shared", "per_arm")):
        policy = base(preset=preset, model=model)
        rng = np.random.default_rng(26)
        together, alone = policy.init(lanes), [policy.init() for _ in range(lanes)]
        for _ in range(12):
            x, uniforms = features_of(policy, rng, lanes), rng.random(lanes)
            choice = policy.decide(together, x, uniforms)
            rewards, costs = outcome_of(policy, rng, lanes)
            together = policy.settle(policy.commit(together, choice.ticket), choice.ticket, rewards, costs)
            for i in range(lanes):
                row = slice(i, i + 1)
                single = policy.decide(alone[i], x[row], uniforms[row])
                assert single.arm[0] == choice.arm[i]
                committed = policy.commit(alone[i], single.ticket)
                alone[i] = policy.settle(committed, single.ticket, rewards[row], costs[row])
        np.testing.assert_allclose(together.books, np.concatenate([state.books for state in alone]), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(policy=policies(), seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 40))
def test_several_commits_at_once_and_one_by_one_leave_the_same_bits(policy, seed, rows):
    rng = np.random.default_rng(seed)
    d, arm = policy.resources, rng.integers(NULL_ARM, policy.arms, rows)
    numbers = rng.uniform(0.0, 2.0, (rows, 3 + 3 * d)) * (arm != NULL_ARM)[:, None]
    numbers[:, 3 + d : 3 + 2 * d] = rng.uniform(0.0, 1.0, d)  # the pace is the same for all of a batch
    ticket = Ticket(arm, np.zeros((rows, policy.dimension)), numbers)
    state = policy.commit(policy.init(), ticket.rows(slice(0, 5)))
    one_by_one = state
    for row in range(rows):
        one_by_one = policy.commit(one_by_one, ticket.rows(slice(row, row + 1)))
    together = policy.commit(state, ticket)
    np.testing.assert_array_equal(together.books, one_by_one.books)
    assert not together.books.flags.writeable


@pytest.mark.parametrize("arms", [0, 3])
def test_single_and_round_price_late_outcomes_the_same_for_a_policy_with_or_without_arms(arms):
    max_cost = [[1.0, 0.5]] * max(arms, 1)
    policy = SquareCBwK(
        arms=arms, dimension=2, resources=2, horizon=300, budget=[60.0, 40.0], max_cost=max_cost, model="shared"
    )
    rng, late = np.random.default_rng(3), 0
    one, two, waiting = policy.init(), policy.init(lanes=2), []
    for round_number in range(150):
        x, uniform = rng.random((1, 3, 2)), rng.random(1)
        choice, rows = policy.decide(one, x, uniform), policy.decide(two, *in_two_lanes(x, uniform))
        assert_same_choice(choice, rows)
        late += is_late(one.waited / np.maximum(one.settled, 1), policy.horizon - one.round).item()
        one, two = policy.commit(one, choice.ticket), policy.commit(two, rows.ticket)
        waiting.append((choice.ticket, rows.ticket))
        if round_number >= 20:
            outcome = outcome_of(policy, rng)
            mine, others = waiting.pop(0)
            one = policy.settle(one, mine, *outcome)
            two = policy.settle(two, others, *in_two_lanes(*outcome))
    assert late > 50
    assert_same_state(one, two)
