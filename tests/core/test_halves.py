"""Costs that are learnt before their reward, from rules 4 on: what the policy knows, counts and stores."""

from dataclasses import replace

import numpy as np
import pytest

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.group import Group
from cbwk_core.model import with_model
from cbwk_core.oracles import NewtonState, ProductState
from cbwk_core.snapshot import MismatchError

SIZES = {"arms": 3, "dimension": 2, "resources": 2, "horizon": 400, "budget": 150}
PER_ARM = SquareCBwK(**SIZES, model="per_arm", max_cost=((1.0, 2.0),) * 3)
SHARED = SquareCBwK(**SIZES)
models = pytest.mark.parametrize("policy", [PER_ARM, SHARED], ids=lambda policy: policy.model)


def features_of(policy, rng, rows=1):
    shape = (rows, policy.arms, policy.dimension) if policy.model == "shared" else (rows, policy.dimension)
    return rng.random(shape)


def decided(policy, rng, rounds):
    """A state after that many decisions, and for each of them its ticket, reward and costs; nothing is learnt."""
    state, outcomes = policy.init(), []
    for _ in range(rounds):
        ticket = policy.decide(state, features_of(policy, rng), rng.random(1)).ticket
        state = policy.commit(state, ticket)
        if ticket.arm[0] != NULL_ARM:
            outcomes.append((ticket, rng.random(1), rng.random((1, 2)) * policy.problem.unit))
    return state, outcomes


def settled(policy, rng, rounds):
    """The same after all costs are booked, and nothing is learnt."""
    state, outcomes = decided(policy, rng, rounds)
    for outcome in outcomes:
        state = policy.settle(state, *outcome, learn=False)
    return state, outcomes


def teach_costs(policy, state, outcomes):
    for outcome in outcomes:
        state = policy.teach(state, *outcome, learn_reward=False)
    return state


def teach_rewards(policy, state, outcomes):
    for outcome in outcomes:
        state = policy.teach(state, *outcome, learn_costs=False)
    return state


def teach_whole(policy, state, outcomes):
    for outcome in outcomes:
        state = policy.teach(state, *outcome)
    return state


def ridge(policy, outcomes, target, block):
    """θ of one target and block by the normal equations of the outcomes, independent of any oracle."""
    a, b = policy.regressor.ridge * np.eye(3), np.zeros(3)
    for ticket, reward, costs in outcomes:
        if policy.model == "shared" or ticket.arm[0] == block:
            phi = np.append(ticket.features[0], 1.0)
            y = np.append(reward, costs / policy.problem.unit)
            a += np.outer(phi, phi)
            b += phi * y[target]
    return np.linalg.solve(a, b)


@models
def test_costs_teach_before_their_rewards_and_each_half_is_a_regression_on_what_is_known_of_it(policy):
    state, outcomes = settled(policy, np.random.default_rng(1), 60)
    state = teach_costs(policy, state, outcomes)
    state = teach_rewards(policy, state, outcomes[:25])
    x = features_of(policy, np.random.default_rng(2))
    predicted = policy.predict(state, x)[0]
    for arm in range(3):
        phi = np.append(x[0, arm] if policy.model == "shared" else x[0], 1.0)
        for target, known in enumerate((outcomes[:25], outcomes, outcomes)):
            theta = ridge(policy, known, target, arm)
            np.testing.assert_allclose(predicted[arm, target], phi @ theta, atol=1e-9)


@models
def test_an_outcome_counts_as_learnt_and_in_the_noise_once_with_its_reward(policy):
    state, outcomes = settled(policy, np.random.default_rng(3), 40)
    with_costs = teach_costs(policy, state, outcomes)
    assert with_costs.learnt == state.learnt == 0
    np.testing.assert_array_equal(with_costs.residuals, state.residuals)
    np.testing.assert_array_equal(with_costs.books, state.books)
    after, whole = teach_rewards(policy, with_costs, outcomes), teach_whole(policy, state, outcomes)
    assert after.learnt == whole.learnt == len(outcomes)
    np.testing.assert_allclose(after.residuals, whole.residuals, rtol=1e-12)
    np.testing.assert_array_equal(after.books, whole.books)


@models
def test_when_all_rewards_have_come_the_halves_know_what_whole_outcomes_teach(policy):
    rng = np.random.default_rng(4)
    state, outcomes = settled(policy, rng, 60)
    apart = teach_rewards(policy, teach_costs(policy, state, outcomes), outcomes[::-1])
    whole = teach_whole(policy, state, outcomes)
    x, uniforms = features_of(policy, rng, 5), rng.random(5)
    one, other = policy.decide(apart, x, uniforms), policy.decide(whole, x, uniforms)
    np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-8)
    np.testing.assert_allclose(policy.predict(apart, x), policy.predict(whole, x), atol=1e-9)


@models
def test_whole_outcomes_keep_one_gram_matrix_and_the_first_half_alone_makes_a_second(policy):
    state, outcomes = settled(policy, np.random.default_rng(5), 20)
    whole = teach_whole(policy, state, outcomes[:5])
    assert isinstance(whole.oracle, NewtonState)
    apart = teach_costs(policy, whole, outcomes[5:6])
    assert isinstance(apart.oracle, ProductState)
    assert isinstance(teach_whole(policy, apart, outcomes[6:8]).oracle, ProductState)


@models
def test_the_reward_that_is_missing_keeps_an_arm_uncertain(policy):
    """The leverage is that of the reward: costs alone do not end exploration."""
    rng = np.random.default_rng(6)
    state, outcomes = settled(policy, rng, 60)
    x, uniforms = features_of(policy, rng), rng.random(1)
    lifted = policy.lifted(policy.checked_features(x))
    costs_only = teach_costs(policy, state, outcomes)
    before = policy.regressor.spread(state.oracle, lifted)
    np.testing.assert_allclose(policy.regressor_of(costs_only.oracle).spread(costs_only.oracle, lifted), before)
    assert policy.decide(costs_only, x, uniforms).probabilities.shape == (1, 4)


@models
def test_rows_of_any_halves_at_once_equal_single_rows_in_order(policy):
    rng = np.random.default_rng(7)
    state, outcomes = settled(policy, rng, 50)
    count = len(outcomes)
    flags = rng.random((count, 2)) < 0.6
    tickets = [ticket for ticket, _, _ in outcomes]
    joined = tickets[0]._replace(
        arm=np.concatenate([ticket.arm for ticket in tickets]),
        features=np.concatenate([ticket.features for ticket in tickets]),
        numbers=np.concatenate([ticket.numbers for ticket in tickets]),
    )
    rewards, costs = (np.concatenate([outcome[i] for outcome in outcomes]) for i in (1, 2))
    at_once = policy.teach(state, joined, rewards, costs, learn_reward=flags[:, 0], learn_costs=flags[:, 1])
    one_by_one = state
    for outcome, (reward, cost) in zip(outcomes, flags.tolist(), strict=True):
        one_by_one = policy.teach(one_by_one, *outcome, learn_reward=reward, learn_costs=cost)
    np.testing.assert_array_equal(at_once.books, one_by_one.books)
    np.testing.assert_array_equal(at_once.residuals, one_by_one.residuals)
    for one, other in zip(at_once.oracle.parts, one_by_one.oracle.parts, strict=True):
        np.testing.assert_array_equal(one.solution, other.solution)


def test_a_null_decision_teaches_no_half():
    ticket = PER_ARM.decide(PER_ARM.init(), np.ones((1, 2)), np.array([0.5]), exclude=np.ones((1, 3), bool)).ticket
    state = PER_ARM.commit(PER_ARM.init(), ticket)
    after = PER_ARM.teach(state, ticket, [0.0], [[0.0, 0.0]], learn_reward=False)
    np.testing.assert_array_equal(after.books, state.books)
    np.testing.assert_array_equal(PER_ARM.predict(after, [[1.0, 1.0]]), PER_ARM.predict(state, [[1.0, 1.0]]))


@pytest.mark.parametrize(
    "policy",
    [replace(PER_ARM, rules=3), SquareCBwK(**SIZES, preset="paper"), SquareCBwK(**SIZES, preset="authors")],
    ids=["rules 3", "paper", "authors"],
)
def test_a_policy_of_earlier_rules_or_of_the_paper_learns_both_halves_at_once(policy):
    assert not policy.learns_costs_first
    ticket = policy.decide(policy.init(), features_of(policy, np.random.default_rng(8)), np.array([0.1])).ticket
    state = policy.commit(policy.init(), ticket)
    with pytest.raises(ValueError, match="both halves"):
        policy.teach(state, ticket, [0.5], [[0.5, 0.5]], learn_reward=False)


ORACLES = [{}, {"link": "logistic"}, *({"oracle": name} for name in ("gradient", "kernel", "aggregate"))]


@pytest.mark.parametrize("options", ORACLES, ids=str)
def test_every_oracle_of_the_service_learns_costs_first(options):
    policy = SquareCBwK(**SIZES, model="per_arm", **options)
    assert policy.learns_costs_first
    state, outcomes = settled(policy, np.random.default_rng(9), 30)
    x = np.array([[0.5, 0.5]])
    before = policy.predict(state, x)
    costs_only = teach_costs(policy, state, outcomes)
    np.testing.assert_array_equal(policy.predict(costs_only, x)[..., 0], before[..., 0])
    assert (policy.predict(costs_only, x)[..., 1:] != before[..., 1:]).any(axis=2).all()
    after = teach_rewards(policy, costs_only, outcomes)
    np.testing.assert_allclose(
        policy.predict(after, x), policy.predict(teach_whole(policy, state, outcomes), x), atol=1e-9
    )


@models
def test_a_split_state_is_the_same_after_its_bytes_and_a_whole_one_too(policy):
    state, outcomes = settled(policy, np.random.default_rng(10), 30)
    for known in (teach_costs(policy, state, outcomes), teach_whole(policy, state, outcomes)):
        again = policy.decode(policy.encode(known))
        assert type(again.oracle) is type(known.oracle)
        assert policy.encode(again) == policy.encode(known)


def test_the_model_of_a_split_state_serves_any_policy_of_its_shape():
    state, outcomes = settled(PER_ARM, np.random.default_rng(11), 30)
    split = teach_costs(PER_ARM, state, outcomes)
    x = np.array([[0.5, 0.2]])
    data = PER_ARM.encode_model(split)
    for other in (replace(PER_ARM, budget=99, horizon=50), replace(PER_ARM, rules=3)):
        taken = with_model(other.init(), other.decode_model(data))
        np.testing.assert_array_equal(other.predict(taken, x), PER_ARM.predict(split, x))
        learnt = other.learn(taken, x, [1], [0.9], [[0.1, 0.1]])
        assert learnt.learnt == taken.learnt + 1
        assert (other.predict(learnt, x)[0, 1] != other.predict(taken, x)[0, 1]).all()


def test_a_split_model_of_forged_numbers_is_refused():
    state, outcomes = settled(PER_ARM, np.random.default_rng(11), 30)
    reward, costs = teach_costs(PER_ARM, state, outcomes).oracle.parts
    for parts in ((reward,), (reward, reward), (costs, reward), (reward, costs._replace(updates=-costs.updates - 1))):
        forged = state._replace(oracle=ProductState(parts))
        with pytest.raises(MismatchError):
            PER_ARM.decode_model(PER_ARM.encode_model(forged))


def test_arms_that_are_added_to_a_split_state_know_nothing():
    state, outcomes = settled(PER_ARM, np.random.default_rng(12), 30)
    split = teach_costs(PER_ARM, state, outcomes)
    larger = replace(PER_ARM, arms=4, max_cost=((1.0, 2.0),) * 4)
    adopted = larger.adopt(PER_ARM, split)
    x = np.array([[0.5, 0.2]])
    np.testing.assert_array_equal(larger.predict(adopted, x)[:, :3], PER_ARM.predict(split, x))
    np.testing.assert_array_equal(larger.predict(adopted, x)[:, 3], 0.0)


@models
def test_one_request_of_a_split_state_in_plain_floats_is_the_one_in_arrays(policy):
    rng = np.random.default_rng(13)
    state, outcomes = settled(policy, rng, 80)
    state = teach_rewards(policy, teach_costs(policy, state, outcomes), outcomes[:20])
    for _ in range(20):
        x, uniforms = features_of(policy, rng), rng.random(1)
        one = policy._single.decide(state, x, uniforms, None)
        other = policy.decide(state, x, uniforms, exclude=np.zeros((1, 3), bool))
        assert one is not None
        np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-10)
        assert one.arm == other.arm


def test_policies_some_of_which_are_split_decide_together_as_each_alone():
    rng = np.random.default_rng(14)
    state, outcomes = settled(PER_ARM, rng, 60)
    states = [teach_costs(PER_ARM, state, outcomes), teach_whole(PER_ARM, state, outcomes), PER_ARM.init()]
    x, uniforms, free = rng.random((3, 2)), rng.random(3), np.full((3, 2), 100.0)
    choice = Group([PER_ARM] * 3, states).decide(x, uniforms, free)
    for i, own in enumerate(states):
        alone = PER_ARM.decide(own, x[i : i + 1], uniforms[i : i + 1], free=free[i])
        np.testing.assert_allclose(choice.probabilities[i], alone.probabilities[0], atol=1e-10)


def test_gamma_counts_the_rewards_that_a_restart_has_forgotten_and_not_the_costs():
    policy = SquareCBwK(arms=1, dimension=1, resources=1, horizon=9000, budget=9000, model="per_arm")
    rng, state = np.random.default_rng(15), policy.init()
    x = np.array([[1.0]])
    ticket = policy.decide(state, x, np.array([0.0])).ticket
    for round_ in range(600):
        cost = 0.2 if round_ < 400 else 0.9
        outcome = (ticket, np.array([0.5]), np.array([[cost + 0.05 * rng.standard_normal()]]))
        state = policy.teach(state, *outcome, learn_reward=False)
        if round_ < 100:
            state = policy.teach(state, *outcome, learn_costs=False)
    assert policy.changes(state) == 1
    assert policy.forgotten(state.oracle) == 100 == state.learnt


@models
def test_an_outcome_that_makes_a_split_model_infinite_is_seen(policy):
    state, outcomes = settled(policy, np.random.default_rng(16), 10)
    state = teach_costs(policy, state, outcomes)
    assert policy.is_finite(state)
    reward, costs = state.oracle.parts
    broken = ProductState((reward, costs.with_theta(np.full_like(costs.theta, np.inf))))
    assert not policy.is_finite(state._replace(oracle=broken))
