"""What `decide` answers: masks, reasons, exact probabilities, and money that the rows of a batch share."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cbwk_core import NULL_ARM, SquareCBwK
from cbwk_core.oracles.newton_state import PRODUCT_CACHED
from cbwk_core.presets import (
    BLIND_COUNT,
    DAMPING,
    DEAR_PLAYS,
    GAMMA_FACTOR,
    NOISE_MIN,
    PLAUSIBLE_FLOOR,
    PLAUSIBLE_PRIOR,
    PLAUSIBLE_VARIANCE,
    PRESETS,
    PRIOR_WIDTH,
    UNPACED_BUDGET_MAX,
    WIDTHS,
)
from cbwk_core.presets import RESIDUAL_PRIOR as PRIOR
from cbwk_core.presets import RESIDUAL_PRIOR_COUNT as PRIOR_COUNT
from cbwk_core.rules.gamma import gamma_of_notebook_gradient, gamma_of_notebook_newton
from cbwk_core.rules.inverse_gap import inverse_gap_weights, sample
from cbwk_core.state import OPENED, SETTLED

ARMS, DIMENSION, RESOURCES, HORIZON = 4, 3, 2, 1000
# Whole numbers, so that sums of holds are exact; arm 3 needs nothing of the first resource.
HOLDS = np.array([[1, 4], [2, 1], [3, 5], [0, 2]])
LAST_UNIFORM = 1.0 - 2.0**-53
EVERY_PRESET = sorted(PRESETS)

seeds = st.integers(0, 2**32 - 1)
presets = st.sampled_from(EVERY_PRESET)
models = st.sampled_from(["shared", "per_arm"])


def make(**other):
    budget = [700.0, 1500.0]
    base = {"arms": ARMS, "dimension": DIMENSION, "resources": RESOURCES, "horizon": HORIZON, "budget": budget}
    return SquareCBwK(**{**base, "max_cost": HOLDS, **other})


def features_of(policy, rng, rows):
    shape = (rows, policy.arms, policy.dimension) if policy.model == "shared" else (rows, policy.dimension)
    return rng.uniform(0.0, 0.6, shape)


def taught(policy, rng, rounds=12, reward=(0.0, 1.0)):
    """A state that distinguishes the arms and has prices."""
    state = policy.init()
    for _ in range(rounds):
        costs = rng.uniform(0.2, 1.0, (1, policy.resources)) * policy.problem.unit
        arm = rng.integers(0, policy.arms, 1)
        state = policy.learn(state, features_of(policy, rng, 1), arm, rng.uniform(*reward, 1), costs)
    return state


def limited(policy, state, norms, leverage, allowed):
    """How probable each arm may be: an arm that is dearer than the cheapest is tried as often as the budget bears."""
    free = [max(b - s - h, 0.0) for b, s, h in zip(policy.budget, state.spent[0], state.held[0], strict=True)]
    pays = [min(f / h if h else math.inf for f, h in zip(free, hold, strict=True)) for hold in policy.max_cost]
    cheapest = max((a for a in range(len(pays)) if allowed[a]), key=lambda a: (pays[a], -a), default=0)
    limits = []
    for own, norm, each in zip(policy.max_cost, norms, leverage, strict=True):
        unknown = min(each * policy.regressor.ridge / norm, 1.0)
        risks = [max(hold - low, 0.0) * unknown for hold, low in zip(own, policy.max_cost[cheapest], strict=True)]
        plays = min(f / risk if risk else math.inf for f, risk in zip(free, risks, strict=True))
        limits.append(min(plays**2 / (DEAR_PLAYS * (policy.horizon - state.round.item())), 1.0))
    return limits


def weighed(policy, state, x, allowed):
    """The probabilities of one request by the formula, one candidate after the other; null is the last."""
    quote, practical, null = policy.quote(state), policy.preset == "practical", policy.arms
    prices, rho = quote.prices[0].tolist(), quote.rho[0].tolist()
    gamma, noise = float(quote.gamma[0, 0]), np.broadcast_to(quote.noise[0], null).tolist()
    lifted = policy.lifted(np.array(x if policy.model == "shared" else [x]))[None]
    predictions = policy.regressor.predict(state.oracle, lifted)[0].tolist()
    leverage = policy.regressor.spread(state.oracle, lifted)[0].tolist()
    worth = [r + sum(p * (b - c) for p, b, c in zip(prices, rho, costs, strict=True)) for r, *costs in predictions]
    worth.append(sum(p * b for p, b in zip(prices, rho, strict=True)))
    candidates = [a for a in range(null) if allowed[a]] + [null]
    norms = np.broadcast_to((lifted[0] ** 2).sum(axis=-1), null).tolist()
    limits = [*limited(policy, state, norms, leverage, allowed), 1.0] if practical else [1.0] * (null + 1)
    best = max((a for a in candidates if limits[a] == 1.0), key=lambda a: (worth[a], -a))
    count, rounds = len(candidates), state.round.item()
    share = max(float(state.books[0, OPENED] + state.books[0, SETTLED]), 1.0) / max(rounds, 1.0)
    tries, left = share if best == null else 1.0, (policy.horizon - rounds) * share / policy.parameters
    width = [WIDTHS * math.sqrt(own * each) + PRIOR_WIDTH * each for own, each in zip(noise, leverage, strict=True)]
    variance = [
        PLAUSIBLE_VARIANCE * own * each * math.log(1 + left * each) + (PLAUSIBLE_PRIOR * each) ** 2
        for own, each in zip(noise, leverage, strict=True)
    ]
    width.append(0.0)
    variance.append(0.0)
    weights = [0.0] * len(worth)
    for a in candidates:
        if a == best or (a == null and practical):
            continue
        gap = max(worth[best] - worth[a], 0.0)
        if practical and policy.model == "per_arm":
            plausible = math.exp(-(gap**2) / (2 * (variance[a] + variance[best]))) * tries / count
            weights[a] = max(plausible, 1.0 / (PLAUSIBLE_FLOOR * count / tries + gamma * gap))
        else:
            weights[a] = 1.0 / (count + gamma * gap)
            weights[a] *= DAMPING if practical and gap > width[a] + width[best] else 1.0
        weights[a] = min(weights[a], limits[a])
    weights[best] = 1.0 - sum(weights)
    return weights


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_noise_and_gamma_follow_from_the_residuals_in_units_of_the_lagrangian(model):
    policy = make(model=model)
    rng, state, residuals = np.random.default_rng(11), policy.init(), []
    # With a model per arm, residuals of costs are counted in the arm's own max cost; a max cost of 0 adds no noise.
    scales = [[1 / 3, 4 / 5], [2 / 3, 1 / 5], [1.0, 1.0], [0.0, 2 / 5]] if model == "per_arm" else [[1.0, 1.0]]
    for t in range(60):
        quote = policy.quote(state)
        noises = []
        for scale in scales[:1] if model == "shared" else scales:
            u = np.array([1.0, *-quote.prices[0]]) * [1.0, *scale]
            square = sum(float(u @ residual) ** 2 for residual in residuals)
            spread = (square + PRIOR * PRIOR_COUNT * float(u @ u)) / (len(residuals) + PRIOR_COUNT)
            noises.append(max(spread, NOISE_MIN))
        np.testing.assert_allclose(quote.noise, [noises], rtol=1e-9)
        noise = sum(noises) / len(noises)
        parameters = (DIMENSION + 1) * (ARMS if model == "per_arm" else 1)
        np.testing.assert_allclose(
            quote.gamma, GAMMA_FACTOR * math.sqrt((ARMS + 1) * (t + 1) / (noise * parameters)), rtol=1e-9
        )
        ticket = policy.decide(state, features_of(policy, rng, 1), rng.random(1)).ticket
        rewards, costs = rng.random(1), rng.random((1, 2))
        if ticket.arm[0] != NULL_ARM:
            outcome = np.array([rewards[0], costs[0, 0] / 3.0, costs[0, 1] / 5.0])
            off = outcome - [ticket.reward[0], *ticket.costs[0]]
            own = scales[ticket.arm[0]] if model == "per_arm" else scales[0]
            residuals.append(off / [1.0, *(scale or 1.0 for scale in own)])
        state = policy.settle(policy.commit(state, ticket), ticket, rewards, costs)
    assert len(residuals) > 20


def test_gamma_of_the_papers_presets_is_that_of_the_theorem_and_of_the_notebook():
    sizes = {"arms": 3, "dimension": 10, "resources": 4, "horizon": 2000, "budget": 500.0}
    paper, authors = SquareCBwK(**sizes, preset="paper"), SquareCBwK(**sizes, preset="authors")
    gamma = math.sqrt(4 * 2000 / (10 * math.log(2000) * (1 + 5**2 * 4) + 4 * math.log(4000)))
    np.testing.assert_allclose(paper.quote(paper.init()).gamma, [[gamma]])
    assert 0.9 < gamma < 1.1
    np.testing.assert_allclose(authors.quote(authors.init()).gamma, [[gamma_of_notebook_newton(3, 2000, 10)]])
    steps = replace(authors, oracle="gradient")
    np.testing.assert_allclose(steps.quote(steps.init()).gamma, [[gamma_of_notebook_gradient(3, 2000)]])


@settings(max_examples=80)
@given(presets, models, seeds, st.sets(st.integers(0, ARMS - 1)), st.data())
def test_probabilities_are_those_of_the_formula_over_the_candidates_that_no_mask_excludes(
    preset, model, seed, retired, data
):
    policy = make(preset=preset, model=model, retired=tuple(retired))
    rng = np.random.default_rng(seed)
    state = taught(policy, rng)
    excluded = data.draw(st.lists(st.booleans(), min_size=ARMS, max_size=ARMS))
    free = data.draw(st.tuples(st.integers(-1, 8), st.integers(-1, 8)))
    x, uniform = features_of(policy, rng, 1), rng.random(1)
    choice = policy.decide(state, x, uniform, exclude=[excluded], free=free)
    if preset == "practical":
        payable = [all(hold <= left for hold, left in zip(row, free, strict=True)) for row in HOLDS.tolist()]
    else:
        payable = [free[0] > HOLDS[:, 0].max() and free[1] > HOLDS[:, 1].max()] * ARMS
    asked = [not excluded[a] and a not in retired for a in range(ARMS)]
    allowed = [ask and pay for ask, pay in zip(asked, payable, strict=True)]
    np.testing.assert_allclose(choice.probabilities[0], weighed(policy, state, x[0], allowed), rtol=1e-9, atol=1e-12)
    assert all(choice.probabilities[0, a] == 0.0 for a in range(ARMS) if not allowed[a])
    assert abs(choice.probabilities.sum() - 1.0) <= 1e-15
    assert choice.probability[0] == choice.probabilities[0, choice.arm[0]] > 0.0
    expected = "policy" if any(allowed) else "budget_exhausted" if any(asked) else "all_excluded"
    assert choice.reason == (expected,)
    if not any(allowed):
        assert choice.arm[0] == NULL_ARM
        assert choice.probability[0] == 1.0


@pytest.mark.parametrize("preset", EVERY_PRESET)
@pytest.mark.parametrize(
    ("over", "excluded", "penniless", "reason"),
    [
        (True, True, True, "ended"),
        (True, False, True, "ended"),
        (True, False, False, "ended"),
        (False, True, True, "all_excluded"),
        (False, True, False, "all_excluded"),
        (False, False, True, "budget_exhausted"),
        (False, False, False, "policy"),
    ],
)
def test_a_forced_null_has_probability_1_and_the_first_reason_that_applies(preset, over, excluded, penniless, reason):
    policy = make(preset=preset, horizon=3)
    state = taught(policy, np.random.default_rng(1), rounds=3 if over else 2)
    free = [0, 0] if penniless else [90, 90]
    x = np.full((1, ARMS, DIMENSION), 0.3)
    choice = policy.decide(state, x, [0.3], exclude=np.full((1, ARMS), excluded), free=free)
    assert choice.reason == (reason,)
    if reason != "policy":
        np.testing.assert_array_equal(choice.probabilities, [[0.0] * ARMS + [1.0]])
        assert (choice.arm[0], choice.probability[0]) == (NULL_ARM, 1.0)
        ticket = choice.ticket
        assert not np.concatenate([ticket.costs[0], ticket.hold[0], ticket.features[0], ticket.reward]).any()


@pytest.mark.parametrize("preset", EVERY_PRESET)
def test_rows_of_a_batch_beyond_the_horizon_have_ended(preset):
    policy = make(preset=preset, horizon=5)
    rng = np.random.default_rng(2)
    state = taught(policy, rng, rounds=3)
    choice = policy.decide(state, features_of(policy, rng, 4), rng.random(4), free=[100, 100])
    assert choice.reason == ("policy", "policy", "ended", "ended")
    assert choice.ticket.round.tolist() == [3, 4, 5, 6]
    assert choice.arm[2:].tolist() == [NULL_ARM, NULL_ARM]


def test_one_exhausted_resource_ends_the_campaign_in_paper_and_masks_the_arms_that_need_it_in_practical():
    rng = np.random.default_rng(3)
    for preset in EVERY_PRESET:
        policy = make(preset=preset)
        choice = policy.decide(taught(policy, rng), features_of(policy, rng, 1), [0.2], free=[0, 100])
        playable = (choice.probabilities[0, :ARMS] > 0).tolist()
        assert playable == ([False] * 3 + [True] if preset == "practical" else [False] * ARMS)


@pytest.mark.parametrize(("free", "alive"), [([3, 6], False), ([4, 5], False), ([4, 6], True)])
def test_the_paper_exits_when_no_more_than_a_max_cost_is_left(free, alive):
    policy = make(preset="paper")
    choice = policy.decide(policy.init(), np.zeros((1, ARMS, DIMENSION)), [0.0], free=free)
    assert (choice.reason == ("policy",)) is alive


@settings(max_examples=60)
@given(presets, seeds, st.lists(st.booleans(), min_size=ARMS, max_size=ARMS), st.floats(0.0, LAST_UNIFORM))
def test_no_uniform_draws_an_arm_of_probability_0(preset, seed, excluded, uniform):
    policy = make(preset=preset)
    rng = np.random.default_rng(seed)
    state, x = taught(policy, rng), features_of(policy, rng, 1)
    edges = policy.decide(state, x, [0.5], exclude=[excluded]).probabilities[0].cumsum()
    near = [value for edge in edges for value in (edge, np.nextafter(edge, 0.0), np.nextafter(edge, 2.0))]
    uniforms = [0.0, LAST_UNIFORM, uniform, *(value for value in near if value < 1.0)]
    for value in uniforms:
        choice = policy.decide(state, x, np.array([value]), exclude=[excluded])
        assert choice.probabilities[0, choice.arm[0]] > 0.0
        assert not any(excluded) or not excluded[choice.arm[0]] or choice.arm[0] == NULL_ARM


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9), st.data())
def test_the_probability_that_rounding_leaves_goes_to_the_best_candidate(raw, data):
    zeros = data.draw(st.sets(st.integers(0, len(raw) - 1), max_size=len(raw) - 1))
    weights = np.array([0.0 if a in zeros else value for a, value in enumerate(raw)])
    weights *= (1.0 - 1e-9) / weights.sum()  # far more than rounding would leave
    best = int(weights.argmax())
    drawn = sample(np.stack([weights] * 3), np.full(3, best), np.array([0.0, 1.0 - 1e-10, LAST_UNIFORM]))
    assert weights[drawn[0]] > 0.0
    assert drawn[1] == drawn[2] == best


def test_ties_prefer_real_arms_and_among_them_the_first():
    scores = np.array([[0.3, 0.7, 0.7, 0.7], [0.0, 0.0, 0.0, 0.0], [-1.0, -1.0, -1.0, 0.0]])
    for explore_null in (True, False):
        _, best = inverse_gap_weights(scores, np.array([[1.0]]), explore_null=explore_null)
        assert best.tolist() == [1, 0, 3]
    policy = make(max_cost=HOLDS[2])
    choice = policy.decide(policy.init(), np.zeros((1, ARMS, DIMENSION)), [0.0])  # all predictions and prices are 0
    np.testing.assert_allclose(choice.probabilities[0], [2 / 5, 1 / 5, 1 / 5, 1 / 5, 0.0])


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_the_papers_presets_explore_the_null_arm_like_any_other(preset):
    policy = make(preset=preset)
    choice = policy.decide(policy.init(), np.zeros((1, ARMS, DIMENSION)), [LAST_UNIFORM])
    np.testing.assert_allclose(choice.probabilities[0], 1 / 5)
    assert (choice.arm[0], choice.reason[0]) == (NULL_ARM, "policy")


@given(seeds, models)
@settings(max_examples=30)
def test_the_practical_preset_plays_null_only_where_it_is_best(seed, model):
    policy = make(model=model, max_cost=HOLDS[2])
    rng = np.random.default_rng(seed)
    for reward in ((-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0)):
        state, x = taught(policy, rng, rounds=20, reward=reward), features_of(policy, rng, 8)
        choice = policy.decide(state, x, rng.random(8))
        predictions = policy.regressor.predict(state.oracle, policy.lifted(x if model == "shared" else x[:, None]))
        worth = predictions[:, :, 0] - predictions[:, :, 1:] @ policy.quote(state).prices[0]
        is_best = (worth < 0.0).all(axis=1)
        np.testing.assert_array_equal(choice.probabilities[:, -1] > 0.0, is_best)
        assert (choice.probabilities[is_best].argmax(axis=1) == ARMS).all()


@settings(max_examples=40)
@given(presets, models, seeds)
def test_a_batch_equals_as_many_single_decisions_from_the_same_state(preset, model, seed):
    policy = make(preset=preset, model=model)
    rng = np.random.default_rng(seed)
    state, x, uniforms = taught(policy, rng), features_of(policy, rng, 6), rng.random(6)
    before = policy.encode(state)
    exclude = rng.random((6, ARMS)) < 0.3
    together = policy.decide(state, x, uniforms, exclude=exclude)
    for i in range(6):
        row = slice(i, i + 1)
        alone = policy.decide(state, x[row], uniforms[row], exclude=exclude[row])
        assert (alone.arm[0], alone.reason[0]) == (together.arm[i], together.reason[i])
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[i], rtol=1e-12, atol=1e-15)
        rest = np.arange(3 + 3 * RESOURCES) != 2 + 2 * RESOURCES  # the round: it is the next one for each
        np.testing.assert_allclose(alone.ticket.numbers[0, rest], together.ticket.numbers[i, rest], atol=1e-15)
        np.testing.assert_array_equal(alone.ticket.features[0], together.ticket.features[i])
    assert policy.encode(state) == before


@pytest.mark.parametrize("model", ["shared", "per_arm"])
def test_a_large_batch_which_is_predicted_in_parts_equals_smaller_batches(model):
    policy = make(model=model, arms=40, dimension=30, max_cost=1.0)
    rows, width = 500, 31 + 1 + RESOURCES
    assert rows * policy.arms * width > PRODUCT_CACHED
    rng = np.random.default_rng(5)
    state, x, uniforms = taught(policy, rng), features_of(policy, rng, rows), rng.random(rows)
    together = policy.decide(state, x, uniforms, free=[10**6, 10**6])
    for start in range(0, rows, 50):
        part = slice(start, start + 50)
        smaller = policy.decide(state, x[part], uniforms[part], free=[10**6, 10**6])
        np.testing.assert_array_equal(together.arm[part], smaller.arm)
        np.testing.assert_allclose(together.probabilities[part], smaller.probabilities, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(together.ticket.costs[part], smaller.ticket.costs, rtol=1e-10, atol=1e-10)


def one_after_the_other(policy, state, x, uniforms, free, exclude=None, holds=None):
    """Single decisions, what is free being reduced by the hold of each; also what was taken in all."""
    left, arms, probabilities, reasons = free.copy(), [], [], []
    for i in range(len(uniforms)):
        row = slice(i, i + 1)
        asked = None if exclude is None else exclude[row]
        wanted = HOLDS if holds is None else holds[i]
        choice = policy.decide(
            state, x[row], uniforms[row], exclude=asked, free=left, holds=None if holds is None else wanted
        )
        if choice.arm[0] != NULL_ARM:
            left = left - wanted[choice.arm[0]]
        arms.append(int(choice.arm[0]))
        probabilities.append(choice.probabilities[0])
        reasons.append(choice.reason[0])
    return arms, probabilities, reasons, left


@settings(max_examples=80)
@given(presets, models, seeds, st.tuples(st.integers(0, 30), st.integers(0, 40)), st.booleans(), st.booleans())
def test_scarce_money_is_shared_in_a_batch_as_between_single_decisions(preset, model, seed, free, own_holds, excludes):
    policy = make(preset=preset, model=model)
    rng = np.random.default_rng(seed)
    state, x, uniforms = taught(policy, rng), features_of(policy, rng, 8), rng.random(8)
    holds = np.stack([rng.permutation(HOLDS) for _ in range(8)]) if own_holds else None
    exclude = rng.random((8, ARMS)) < 0.3 if excludes else None
    free = np.array(free)
    choice = policy.decide(state, x, uniforms, exclude=exclude, free=free, holds=holds)
    arms, probabilities, reasons, left = one_after_the_other(policy, state, x, uniforms, free, exclude, holds)
    assert choice.arm.tolist() == arms
    assert choice.reason == tuple(reasons)
    np.testing.assert_allclose(choice.probabilities, probabilities, rtol=1e-12, atol=1e-15)
    assert (choice.ticket.hold.sum(axis=0) == free - left).all()
    assert (left >= 0).all()  # never more than was free is authorised


@settings(max_examples=60)
@given(st.integers(1, 60), seeds, st.tuples(st.integers(-5, 60), st.integers(-5, 60)), presets)
def test_a_batch_never_authorises_more_than_is_free(rows, seed, free, preset):
    policy = make(preset=preset)
    rng = np.random.default_rng(seed)
    choice = policy.decide(policy.init(), features_of(policy, rng, rows), rng.random(rows), free=np.array(free))
    assert (choice.ticket.hold.sum(axis=0) <= np.maximum(free, 0)).all()


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.float64])
def test_fractional_holds_are_taken_in_full_from_whole_money(dtype):
    policy = make(max_cost=0.5, budget=200.0)
    x = np.zeros((9, ARMS, DIMENSION))
    choice = policy.decide(policy.init(), x, np.full(9, 0.1), free=np.array([2, 3], dtype=dtype))
    assert (choice.arm != NULL_ARM).tolist() == [True] * 4 + [False] * 5


def test_a_batch_of_the_paper_preset_stops_where_single_decisions_stop():
    policy = make(preset="paper", max_cost=1.0, budget=300.0)
    x, uniforms = np.zeros((3, ARMS, DIMENSION)), np.zeros(3)
    choice = policy.decide(policy.init(), x, uniforms, free=np.array([3, 3]))  # the third would leave nothing
    assert choice.reason == ("policy", "policy", "budget_exhausted")


@pytest.mark.parametrize("free", [None, [5, 5], [-3, 5]])
def test_no_requests_get_no_decisions(free):
    policy = make()
    choice = policy.decide(policy.init(), np.zeros((0, ARMS, DIMENSION)), [], free=free)
    assert choice.probabilities.shape == (0, ARMS + 1)
    assert choice.reason == ()
    assert policy.commit(policy.init(), choice.ticket).round[0] == 0


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(0, 4), seeds, presets)
def test_padding_that_is_excluded_changes_nothing(candidates, padding, seed, preset):
    policy = make(preset=preset)
    rng = np.random.default_rng(seed)
    state, uniforms = taught(policy, rng), rng.random(2)
    x = rng.uniform(0.0, 0.6, (2, candidates, DIMENSION))
    wide = candidates + padding
    padded = np.concatenate([x, np.zeros((2, padding, DIMENSION))], axis=1)
    exclude = np.tile(np.arange(wide) >= candidates, (2, 1))
    # The policy's own holds apply where there are as many candidates as arms, so they are given.
    largest = HOLDS.max(axis=0)
    bare = policy.decide(state, x, uniforms, holds=np.tile(largest, (candidates, 1)))
    full = policy.decide(state, padded, uniforms, exclude=exclude, holds=np.tile(largest, (wide, 1)))
    np.testing.assert_array_equal(full.arm, bare.arm)
    np.testing.assert_allclose(full.probabilities[:, :candidates], bare.probabilities[:, :-1], rtol=1e-12)
    assert not full.probabilities[:, candidates:-1].any()
    np.testing.assert_allclose(full.probabilities[:, -1], bare.probabilities[:, -1], rtol=1e-12)
    np.testing.assert_allclose(full.ticket.numbers, bare.ticket.numbers, rtol=1e-12, atol=1e-15)


def test_a_request_with_another_number_of_candidates_holds_a_whole_max_cost():
    policy = make()
    for candidates in (1, ARMS - 1, ARMS + 3):
        choice = policy.decide(policy.init(), np.zeros((1, candidates, DIMENSION)), [0.0])
        assert choice.probabilities.shape == (1, candidates + 1)
        assert choice.ticket.hold[0].tolist() == [3.0, 5.0]
    choice = policy.decide(policy.init(), np.zeros((1, ARMS, DIMENSION)), [0.0])
    assert choice.ticket.hold[0].tolist() == HOLDS[0].tolist()


def test_the_holds_of_a_request_decide_which_arms_are_affordable_and_are_on_the_ticket():
    policy = make()
    x = np.zeros((2, ARMS, DIMENSION))
    holds = np.array([[[3, 3], [1, 1], [3, 3], [3, 3]], [[3, 3], [3, 3], [3, 3], [0, 0]]])
    choice = policy.decide(policy.init(), x, [0.5, 0.5], free=np.array([1, 1]), holds=holds)
    assert choice.arm.tolist() == [1, 3]
    assert choice.probability.tolist() == [1.0, 1.0]
    assert choice.ticket.hold.tolist() == [[1, 1], [0, 0]]
    for_all = policy.decide(policy.init(), x, [0.0, 0.5], free=np.array([5, 5]), holds=holds[0])
    assert for_all.arm[0] != NULL_ARM
    assert for_all.reason == ("policy", "policy")


def blinded(policy, opened, settled):
    """A state with that many decisions open and that many settled."""
    state, x = policy.init(), np.zeros((1, ARMS, DIMENSION))
    for count in range(opened + settled):
        ticket = policy.decide(state, x, [0.0], free=[9, 9]).ticket
        state = policy.commit(state, ticket)
        if count >= opened:
            state = policy.settle(state, ticket, [0.5], [[0.0, 0.0]])
    return state


@pytest.mark.parametrize(("opened", "settled"), [(BLIND_COUNT, 0), (BLIND_COUNT + 9, BLIND_COUNT - 1)])
def test_with_many_decisions_open_and_few_settled_arms_are_played_at_the_even_pace(opened, settled):
    policy = make()
    state = blinded(policy, opened, settled)
    x = np.random.default_rng(5).uniform(0.0, 0.6, (3, ARMS, DIMENSION))
    choice = policy.decide(state, x, [0.0, 0.2, LAST_UNIFORM])
    pace = min(700 / 3, 1500 / 5) / HORIZON  # budgets in max costs over the horizon
    np.testing.assert_allclose(choice.probabilities[:, :-1].sum(axis=1), pace, rtol=1e-12)
    seeing = state.booked(opened=BLIND_COUNT - 1 - opened)  # one open decision less than a blind state has
    ordinary = policy.decide(seeing, x, [0.0, 0.2, LAST_UNIFORM])
    np.testing.assert_allclose(choice.probabilities[:, :-1], pace * ordinary.probabilities[:, :-1], rtol=1e-12)
    assert choice.arm[2] == NULL_ARM
    assert choice.reason == ("policy",) * 3


def test_a_blind_state_with_an_even_pace_above_1_plays_every_arm_as_any_other_state_does():
    policy = make(budget=[3.5 * HORIZON, 6.0 * HORIZON])
    assert (policy.problem.rho > 1.0).all()
    rng = np.random.default_rng(9)
    state = taught(policy, rng).replaced(settled=0.0)
    x, uniforms = features_of(policy, rng, 200), rng.random(200)
    seeing, blind = (policy.decide(state.replaced(opened=count), x, uniforms) for count in (0.0, BLIND_COUNT))
    np.testing.assert_array_equal(blind.probabilities, seeing.probabilities)
    assert (blind.probabilities >= 0.0).all()


@pytest.mark.parametrize(("opened", "settled"), [(BLIND_COUNT - 1, 0), (BLIND_COUNT, BLIND_COUNT)])
def test_with_few_decisions_open_or_enough_settled_nothing_is_throttled(opened, settled):
    policy = make()
    choice = policy.decide(blinded(policy, opened, settled), np.zeros((1, ARMS, DIMENSION)), [0.3])
    assert choice.probabilities[0, -1] == 0.0


@pytest.mark.parametrize(
    ("budget", "given"), [(100.0, 100), (UNPACED_BUDGET_MAX, 128), (UNPACED_BUDGET_MAX + 1.0, None)]
)
def test_a_small_budget_is_granted_in_full_before_any_outcome(budget, given):
    policy = SquareCBwK(arms=2, dimension=1, resources=1, horizon=10_000, budget=budget)
    state, held = policy.init(), 0
    uniforms = np.random.default_rng(0).random(1000)
    for uniform in uniforms:
        choice = policy.decide(state, np.ones((1, 2, 1)), [uniform])
        state = policy.commit(state, choice.ticket)
        held += int(choice.arm[0] != NULL_ARM)
        assert (choice.arm[0] == NULL_ARM) <= (given is None or choice.reason == ("budget_exhausted",))
    assert held == given or (given is None and BLIND_COUNT <= held < 2 * BLIND_COUNT)


@pytest.mark.parametrize("preset", EVERY_PRESET)
def test_on_a_grid_of_uniforms_every_arm_gets_its_probability_to_one_grid_point(preset):
    policy = make(preset=preset, horizon=10**6, gamma=3.0)
    rng = np.random.default_rng(6)
    state, x, points = taught(policy, rng), features_of(policy, rng, 1), 4000
    grid = np.arange(points) / points
    choice = policy.decide(state, np.repeat(x, points, axis=0), grid, free=[10**6, 10**6])
    shares = np.bincount(choice.arm % (ARMS + 1), minlength=ARMS + 1) / points
    np.testing.assert_allclose(shares, choice.probabilities[0], atol=1.0 / points)
    index = np.where(choice.arm == NULL_ARM, ARMS, choice.arm)
    assert (np.diff(index) >= 0).all()  # inverse distribution function in the order of the arms


@pytest.mark.parametrize("preset", EVERY_PRESET)
def test_random_uniforms_give_frequencies_that_pass_a_chi_square_test(preset):
    policy = make(preset=preset, horizon=10**6, gamma=3.0)
    rng = np.random.default_rng(7)
    state, x, rows = taught(policy, rng), features_of(policy, rng, 1), 20_000
    choice = policy.decide(state, np.repeat(x, rows, axis=0), rng.random(rows), free=[10**6, 10**6])
    counts = np.bincount(choice.arm % (ARMS + 1), minlength=ARMS + 1)
    possible = choice.probabilities[0] > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], rows * choice.probabilities[0, possible]).pvalue > 1e-3


@settings(max_examples=30)
@given(presets, models, seeds, st.integers(1, 40), st.booleans())
def test_spend_and_holds_never_exceed_the_budget_whatever_the_delays(preset, model, seed, delay_max, dear):
    policy = make(preset=preset, model=model, budget=[25, 31], horizon=200)
    rng = np.random.default_rng(seed)
    state, waiting = policy.init(), []
    for now in range(80):
        rows = int(rng.integers(1, 4))
        ticket = policy.decide(state, features_of(policy, rng, rows), rng.random(rows)).ticket
        state = policy.commit(state, ticket)
        waiting += [(now + rng.integers(0, delay_max), ticket.rows(slice(i, i + 1))) for i in range(rows)]
        due = [ticket for at, ticket in waiting if at <= now or now == 79]
        waiting = [(at, ticket) for at, ticket in waiting if at > now and now < 79]
        for ticket in due:
            if rng.random() < 0.1:
                state = policy.cancel(state, ticket)
            else:
                cost = ticket.hold if dear else rng.integers(0, ticket.hold.astype(int) + 1)
                state = policy.settle(state, ticket, rng.random(1), cost)
        assert (state.spent + state.held <= policy.budget).all()
    assert state.opened[0] == 0
    np.testing.assert_array_equal(state.held, 0.0)


@pytest.mark.parametrize("preset", EVERY_PRESET)
def test_the_policy_stops_by_itself_when_its_account_is_used_up(preset):
    policy = make(preset=preset, budget=10.0, max_cost=1.0, horizon=400, gamma=0.01)
    rng, state, reasons = np.random.default_rng(8), policy.init(), []
    for _ in range(400):
        choice = policy.decide(state, features_of(policy, rng, 1), rng.random(1))
        real = (choice.arm != NULL_ARM) * 1.0
        state = policy.settle(policy.commit(state, choice.ticket), choice.ticket, real, [[real[0], real[0]]])
        reasons.append(choice.reason[0])
    stop = reasons.index("budget_exhausted")
    assert set(reasons[:stop]) == {"policy"}
    assert set(reasons[stop:]) == {"budget_exhausted"}
    assert state.spent.tolist() == [[10.0 if preset == "practical" else 9.0] * 2]  # the paper exits at B - 1
