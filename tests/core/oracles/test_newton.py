import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.special import expit

from cbwk_core.oracles import Newton
from cbwk_core.oracles.ellipsoid import project_onto_ball
from cbwk_core.oracles.links import implicit_score
from tests.benchmarks.proof_newton_drift import drift


def sigma(z):
    return 1.0 / (1.0 + np.exp(-z))


def test_it_equals_batch_ridge_regression_after_ten_thousand_updates_in_fifty_dimensions():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((10_000, 50))
    y = x @ rng.standard_normal((50, 2)) + rng.standard_normal((10_000, 2))
    oracle = Newton(dimension=50, targets=2, ridge=0.7)
    state = oracle.update(oracle.init(), x, y)
    batch = np.linalg.solve(x.T @ x + 0.7 * np.eye(50), x.T @ y)
    np.testing.assert_allclose(state.theta[0, :, 0], batch, rtol=1e-8, atol=1e-8)


def test_every_block_is_the_batch_ridge_regression_of_its_own_rows():
    rng = np.random.default_rng(2)
    x, y, block = rng.random((300, 3)), rng.random((300, 1)), rng.integers(0, 4, 300)
    oracle = Newton(dimension=3, targets=1, blocks=4)
    state = oracle.update(oracle.init(), x, y, block)
    for b in range(4):
        own = x[block == b]
        batch = np.linalg.solve(own.T @ own + np.eye(3), own.T @ y[block == b])
        np.testing.assert_allclose(state.theta[0, :, b], batch, atol=1e-12)
        leverage = np.linalg.inv(own.T @ own + np.eye(3))
        np.testing.assert_allclose(oracle.spread(state, x[:5])[:, b], np.diag(x[:5] @ leverage @ x[:5].T), atol=1e-12)


def test_the_inverse_does_not_drift_in_twenty_thousand_updates():
    assert drift(updates=20_999, dimension=20) < 1e-6


@st.composite
def projections(draw):
    """A (positive definite, of any condition up to 1e6), θ and a radius."""
    m = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rotation, _ = np.linalg.qr(rng.standard_normal((m, m)))
    exponents = np.array(draw(st.lists(st.floats(-1.0, 5.0), min_size=m, max_size=m)))
    matrix = (rotation * 10.0**exponents) @ rotation.T
    theta = rng.standard_normal(m) * draw(st.floats(0.01, 30.0))
    return (matrix + matrix.T) / 2, theta, draw(st.floats(0.1, 5.0))


def projected(matrix, theta, radius):
    column = theta[:, None].copy()
    project_onto_ball(column, np.linalg.inv(matrix), radius)
    return column[:, 0]


@given(projections())
def test_no_point_a_general_solver_finds_in_the_ball_is_nearer_than_the_projection(problem):
    matrix, theta, radius = problem
    found = projected(matrix, theta, radius)
    assert np.linalg.norm(found) <= radius * (1 + 1e-9)
    scale = max(1.0, theta @ matrix @ theta)

    def distance(x):
        return (x - theta) @ matrix @ (x - theta) / scale

    solved = minimize(
        distance,
        theta * min(1.0, radius / np.linalg.norm(theta)),
        jac=lambda x: 2 * matrix @ (x - theta) / scale,
        constraints={"type": "ineq", "fun": lambda x: radius**2 - x @ x, "jac": lambda x: -2 * x},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    solved *= min(1.0, radius / np.linalg.norm(solved))
    assert distance(found) <= distance(solved) + 1e-9


@given(projections())
def test_a_projection_fulfils_the_optimality_conditions(problem):
    matrix, theta, radius = problem
    found = projected(matrix, theta, radius)
    if np.linalg.norm(theta) <= radius:
        np.testing.assert_array_equal(found, theta)
    else:
        assert np.linalg.norm(found) == pytest.approx(radius, rel=1e-9)
        # θ - x = μ·A⁻¹x with μ >= 0; multiplied by A, rounding would be magnified by its condition.
        inverse = np.linalg.inv(matrix)
        image = inverse @ found
        mu = (theta - found) @ image / (image @ image)
        assert mu >= 0
        scale = mu * np.linalg.norm(inverse, 2) * radius
        assert np.linalg.norm(theta - found - mu * image) <= 1e-9 * scale


def test_many_vectors_are_projected_as_if_each_were_alone():
    rng = np.random.default_rng(3)
    inverse = np.stack([np.linalg.inv(np.eye(6) + 50 * (v := rng.random((6, 4))) @ v.T) for _ in range(5)])
    theta = rng.standard_normal((5, 6, 3)) * np.array([0.1, 1.0, 10.0])
    together = theta.copy()
    project_onto_ball(together, inverse, 1.0)
    for lane in range(5):
        for j in range(3):
            alone = theta[lane, :, j : j + 1].copy()
            project_onto_ball(alone, inverse[lane], 1.0)
            np.testing.assert_allclose(together[lane, :, j], alone[:, 0], atol=1e-10)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), radius=st.floats(0.2, 2.0))
def test_a_projected_parameter_never_leaves_its_ball(seed, radius):
    rng = np.random.default_rng(seed)
    oracle = Newton(dimension=3, targets=2, radius=radius, ridge=0.1)
    state = oracle.init()
    for _ in range(10):
        state = oracle.update(state, rng.standard_normal((5, 3)), rng.standard_normal((5, 2)) * 5)
        assert np.linalg.norm(state.theta[0, :, 0], axis=0).max() <= radius * (1 + 1e-9)


def test_the_logistic_oracle_comes_near_the_batch_maximum_likelihood():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5_000, 4)) / 2
    y = (rng.random(5_000) < sigma(x @ np.array([2.0, -1.0, 0.5, 0.0]))).astype(float)
    oracle = Newton(dimension=4, targets=1, link="logistic")
    theta = oracle.update(oracle.init(), x, y[:, None]).theta[0, :, 0, 0]

    def loss(t):
        return np.sum(np.logaddexp(0, x @ t) - y * (x @ t)) + t @ t / 2

    batch = minimize(loss, np.zeros(4), jac=lambda t: x.T @ (sigma(x @ t) - y) + t).x
    deviation = np.sqrt(np.diag(np.linalg.inv((x.T * (sigma(x @ batch) * sigma(-x @ batch))) @ x)))
    assert (np.abs(theta - batch) < deviation).all()


def learnt_click_rates(rates, clicks, ridge):
    rows, lanes = clicks.shape
    oracle = Newton(dimension=1, targets=1, link="logistic", ridge=ridge)
    state = oracle.update(oracle.init(lanes), np.ones((rows * lanes, 1)), clicks.reshape(-1, 1))
    return oracle.predict(state, np.ones((lanes, 1))).reshape(rates.size, -1)


def test_the_logistic_oracle_learns_click_rates_of_two_percent_and_better_so_with_a_small_ridge():
    rng = np.random.default_rng(5)
    rates, runs, rows = np.array([0.01, 0.02, 0.04]), 20, 4_000
    clicks = (rng.random((rows, rates.size * runs)) < np.repeat(rates, runs)).astype(float)
    seen = clicks.mean(axis=0).reshape(rates.size, runs)
    learnt, stiff = (learnt_click_rates(rates, clicks, ridge) for ridge in (0.1, 1.0))
    assert (np.abs(learnt - seen) < 3 * np.sqrt(rates / rows)[:, None]).all()
    np.testing.assert_allclose(learnt.mean(axis=1), seen.mean(axis=1), rtol=0.2)
    assert (learnt.mean(axis=1) < stiff.mean(axis=1)).all()


@pytest.mark.parametrize("link", ["identity", "logistic"])
def test_spread_times_the_variance_of_a_residual_is_the_variance_of_a_prediction(link):
    rng = np.random.default_rng(6)
    lanes, rows = 1_000, 300
    x = np.tile(np.stack([np.ones(rows), rng.uniform(-1, 1, rows)], axis=1)[:, None], (1, lanes, 1))
    score = x @ np.array([0.2, 0.15])
    rate = sigma(score - 1.5) if link == "logistic" else 0.3 + score
    y = (rng.random((rows, lanes)) < rate).astype(float)
    oracle = Newton(dimension=2, targets=1, link=link, ridge=0.01)
    state = oracle.update(oracle.init(lanes), x.reshape(-1, 2), y.reshape(-1, 1))
    probe = np.tile([[1.0, 0.0]], (lanes, 1))
    predicted, spread = oracle.predict(state, probe)[:, 0, 0], oracle.spread(state, probe)[:, 0]
    residual = np.mean(predicted * (1 - predicted))
    assert predicted.var() == pytest.approx(spread.mean() * residual, rel=0.25)


def test_forgetting_follows_a_change_that_full_memory_averages_away():
    rng = np.random.default_rng(7)
    x = np.concatenate([np.ones((1_000, 1)), rng.uniform(-1, 1, (1_000, 1))], axis=1)
    y = np.where(np.arange(1_000) < 700, 0.2, 0.8)[:, None] + 0.05 * rng.standard_normal((1_000, 1))
    probe = np.array([[1.0, 0.0]])
    learnt = {}
    for keep in (None, 0.98):
        oracle = Newton(dimension=2, targets=1, forgetting=keep)
        learnt[keep] = oracle.predict(oracle.update(oracle.init(), x, y), probe).item()
    assert learnt[0.98] == pytest.approx(0.8, abs=0.03)
    assert learnt[None] == pytest.approx(0.2 * 0.7 + 0.8 * 0.3, abs=0.03)


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.99, 0.9995])
def test_forgetting_keeps_the_inverse_bounded_where_there_are_no_data(keep):
    oracle = Newton(dimension=2, targets=1, ridge=0.5, forgetting=keep)
    state = oracle.init()
    for _ in range(30):
        state = oracle.update(state, np.tile([[1.0, 0.0]], (100, 1)), np.ones((100, 1)))
        assert state.inverse[0, 0, 1, 1] <= 4.0 / 0.5
        np.testing.assert_allclose(state.inverse[0, 0] @ state.gram[0][0], np.eye(2), atol=1e-9)


def test_a_bound_grows_with_the_number_of_blocks_and_the_radius():
    small, large = Newton(dimension=3, targets=1), Newton(dimension=3, targets=1, blocks=5)
    assert small.error_bound(1000) < large.error_bound(1000)
    assert Newton(dimension=3, targets=1, radius=3.0).error_bound(1000) > small.error_bound(1000)
    by_hand = 2 * (1 + 4 * 3 * np.log(1 + 1000 / 3) + np.log(20))
    assert small.error_bound(1000, delta=0.05) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"link": "probit"}, "link"),
        ({"dimension": 0}, "dimension"),
        ({"ridge": 0.0}, "ridge"),
        ({"radius": -1.0}, "radius"),
        ({"forgetting": 1.0}, "forgetting"),
        ({"start": np.inf}, "start"),
        ({"link": "logistic", "targets": 2}, "logistic"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Newton(**{"dimension": 2, "targets": 1, **options})


def test_rows_without_weight_in_every_lane_change_nothing():
    oracle = Newton(dimension=3, targets=2)
    state = oracle.init(lanes=4)
    after = oracle.update(state, np.ones((4, 3)), np.ones((4, 2)), np.zeros(4, dtype=np.int64), np.zeros(4))
    np.testing.assert_array_equal(after.solution, state.solution)
    np.testing.assert_array_equal(after.gram[0], state.gram[0])


def test_a_logistic_step_minimises_the_rows_own_loss_plus_the_distance_in_the_norm_of_a():
    rng = np.random.default_rng(8)
    oracle = Newton(dimension=3, targets=1, link="logistic", ridge=0.3)
    state = oracle.init()
    for _ in range(20):
        x, y = rng.standard_normal(3), float(rng.random() < 0.2)
        believed, gram = state.theta[0, :, 0, 0], state.gram[0][0]

        def loss(t, x=x, y=y, believed=believed, gram=gram):
            return np.logaddexp(0.0, x @ t) - y * (x @ t) + (t - believed) @ gram @ (t - believed) / 2

        state = oracle.update(state, x[None], [[y]])
        theta = state.theta[0, :, 0, 0]
        solved = minimize(loss, believed, method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(theta, solved, atol=1e-5)
        slope = sigma(x @ theta) * sigma(-x @ theta)
        np.testing.assert_allclose(state.gram[0][0], gram + max(slope, 1e-3) * np.outer(x, x), atol=1e-10)
        np.testing.assert_allclose(state.inverse[0, 0] @ state.gram[0][0], np.eye(3), atol=1e-9)


@given(
    score=st.floats(-30, 30), leverage=st.floats(0, 1e6), target=st.floats(-0.5, 1.5) | st.sampled_from([0.0, 0.5, 1.0])
)
def test_an_implicit_score_solves_its_equation(score, leverage, target):
    z = implicit_score(score, leverage, target)
    reach = 2.0 * leverage + 1.0
    solved = brentq(lambda u: u - score - leverage * (target - expit(u)), score - reach, score + reach, xtol=1e-12)
    assert z == pytest.approx(solved, rel=1e-7, abs=1e-7)


def test_a_start_is_the_first_prediction_and_the_mean_of_the_prior():
    oracle = Newton(dimension=2, targets=1, blocks=2, ridge=2.0, start=0.5)
    np.testing.assert_allclose(oracle.predict(oracle.init(), [[3.0, 1.0]]).ravel(), [0.5, 0.5])
    rng = np.random.default_rng(9)
    x, y = rng.random((30, 2)), rng.random((30, 1))
    state = oracle.resize(oracle.update(oracle.init(), x, y, np.zeros(30, dtype=np.int64)), 3)
    solved = np.linalg.solve(x.T @ x + 2.0 * np.eye(2), x.T @ y + 2.0 * np.array([[0.0], [0.5]]))
    np.testing.assert_allclose(state.theta[0, :, 0], solved, atol=1e-10)
    np.testing.assert_array_equal(state.theta[0, :, 2, 0], [0.0, 0.5])
