from itertools import product

import numpy as np
import pytest

from cbwk_core.simulation import BumpEnvironment, LinearEnvironment, LogisticEnvironment, PaperEnvironment
from cbwk_core.static_optimum import static_optimum

ENVIRONMENTS = [
    PaperEnvironment(m=6, arms=4),
    LinearEnvironment(arms=3, dimension=4, resources=2),
    LinearEnvironment(arms=3, dimension=4, resources=2, outcomes="bernoulli"),
    LinearEnvironment(arms=3, dimension=4, resources=2, model="per_arm"),
    LinearEnvironment(arms=3, dimension=4, resources=2, reward_scale=0.1),
    LogisticEnvironment(arms=3, dimension=5),
    LogisticEnvironment(arms=3, dimension=5, rate=0.02),
    BumpEnvironment(arms=2, dimension=1, resources=2),
    BumpEnvironment(arms=3, dimension=3, resources=1),
]
BOUNDED = [environment for environment in ENVIRONMENTS if not isinstance(environment, PaperEnvironment)]

every_environment = pytest.mark.parametrize("environment", ENVIRONMENTS, ids=repr)
every_bounded_environment = pytest.mark.parametrize("environment", BOUNDED, ids=repr)


def targets(draw):
    """Means and outcomes, (rounds, arms, 1 + d), reward first."""
    means = np.concatenate([draw.mean_reward[..., None], draw.mean_costs], axis=2)
    outcomes = np.concatenate([draw.reward[..., None], draw.costs], axis=2)
    return means, outcomes


@every_environment
def test_a_draw_has_the_documented_shapes(environment):
    draw = environment.draw(np.random.default_rng(0), 0, 7)
    per_arm = environment.model == "per_arm"
    assert draw.features.shape == (
        (7, environment.dimension) if per_arm else (7, environment.arms, environment.dimension)
    )
    assert draw.mean_reward.shape == draw.reward.shape == (7, environment.arms)
    assert draw.mean_costs.shape == draw.costs.shape == (7, environment.arms, environment.resources)


@every_environment
def test_outcomes_average_to_their_means(environment):
    means, outcomes = targets(environment.draw(np.random.default_rng(1), 0, 20_000))
    error = outcomes - means
    # Five standard errors: by chance this fails about once in a hundred thousand for all targets together.
    assert (np.abs(error.mean(axis=0)) <= 5 * error.std(axis=0) / np.sqrt(20_000)).all()


@every_environment
def test_noise_does_not_depend_on_the_context(environment):
    """The mean error is 0 for contexts of high mean and for contexts of low mean."""
    means, outcomes = targets(environment.draw(np.random.default_rng(2), 0, 20_000))
    error = (outcomes - means).reshape(20_000, -1)
    high = (means >= np.median(means, axis=0)).reshape(20_000, -1)
    for column in range(error.shape[1]):
        for part in (error[high[:, column], column], error[~high[:, column], column]):
            if part.size:
                assert abs(part.mean()) <= 5 * part.std() / np.sqrt(part.size)


@every_bounded_environment
def test_bounded_environments_stay_in_the_unit_interval(environment):
    means, outcomes = targets(environment.draw(np.random.default_rng(3), 0, 5_000))
    for values in (means, outcomes):
        assert values.min() >= 0
        assert values.max() <= 1


@every_environment
def test_several_short_draws_give_the_same_rounds_as_one_long_draw(environment):
    whole = environment.draw(np.random.default_rng(4), 0, 10)
    rng = np.random.default_rng(4)
    first, second = environment.draw(rng, 0, 3), environment.draw(rng, 3, 7)
    for at_once, *parts in zip(whole, first, second, strict=True):
        np.testing.assert_allclose(np.concatenate(parts), at_once, rtol=0, atol=1e-15)


@every_environment
def test_the_optimum_rises_with_the_pace_up_to_the_best_arm_of_each_context(environment):
    low, high, unlimited = (environment.optimum(rho) for rho in (0.05, 0.2, 2.0))
    best = environment.draw(np.random.default_rng(5), 0, 5_000).mean_reward.max(axis=1)
    assert 0 < low < high <= unlimited
    assert unlimited == pytest.approx(
        best.mean(), abs=5 * best.std() / np.sqrt(5_000) + 5 * best.std() / np.sqrt(10_000)
    )


def test_the_papers_means_are_those_of_its_text():
    means = PaperEnvironment(m=7, arms=5).means
    root = 1 / np.sqrt(2)
    for arm in range(1, 6):
        reward = 0.5 + 0.5 * (arm == 1)
        costs = [0.5 + 0.5 * (arm == 2), 0.5 * root * (arm <= 4), root * (arm == 3), root * (arm == 4)]
        np.testing.assert_allclose(means[arm - 1], [reward, *costs], atol=1e-15)


@pytest.mark.parametrize(
    ("m", "arms"), [(m, arms) for m, arms in product((5, 10, 52, 100), (1, 3, 4, 10, 51)) if arms < m]
)
def test_the_papers_optimum_is_one_half_at_a_quarter_for_every_size(m, arms):
    """Arm 1 alone, half of the time: the first resource costs at least ½ a play and no other arm earns more than ½."""
    assert PaperEnvironment(m=m, arms=arms).optimum(0.25) == pytest.approx(0.5, abs=1e-12)


def test_the_papers_noise_has_standard_deviation_a_fifth_and_is_not_clipped():
    draw = PaperEnvironment(m=5, arms=3).draw(np.random.default_rng(6), 0, 20_000)
    assert (draw.reward - draw.mean_reward).std() == pytest.approx(0.2, abs=0.005)
    assert draw.reward.max() > 1
    assert draw.costs.min() < 0


def test_linear_means_are_linear_in_the_features():
    environment = LinearEnvironment(arms=3, dimension=4, resources=2)
    draw = environment.draw(np.random.default_rng(7), 0, 200)
    rows = draw.features.reshape(-1, 4)
    _, residual, rank, _ = np.linalg.lstsq(rows, targets(draw)[0].reshape(-1, 3), rcond=None)
    assert rank == 4
    assert (residual < 1e-20).all()
    np.testing.assert_allclose(np.linalg.norm(draw.features, axis=2), 1.0)


def test_per_arm_linear_means_are_linear_in_the_context_for_each_arm():
    draw = LinearEnvironment(arms=3, dimension=4, resources=2, model="per_arm").draw(np.random.default_rng(8), 0, 200)
    for arm in range(3):
        _, residual, _, _ = np.linalg.lstsq(draw.features, targets(draw)[0][:, arm], rcond=None)
        assert (residual < 1e-20).all()


def test_linear_contexts_differ_enough_for_the_best_arm_to_change():
    draw = LinearEnvironment(arms=3, dimension=4, resources=1).draw(np.random.default_rng(9), 0, 1_000)
    shares = np.bincount(draw.mean_reward.argmax(axis=1), minlength=3) / 1_000
    assert shares.min() > 0.2
    assert draw.mean_reward.std() > 0.1


def test_rare_clicks_are_rare_and_money_is_paid_for_clicks_only():
    environment = LogisticEnvironment(arms=4, dimension=5, rate=0.02)
    draw = environment.draw(np.random.default_rng(10), 0, 5_000)
    assert 0.01 < draw.mean_reward.mean() < 0.04
    assert set(np.unique(draw.reward)) == {0.0, 1.0}
    np.testing.assert_array_equal(draw.costs[..., 0], draw.reward * environment.click_prices)
    np.testing.assert_array_equal(draw.costs[..., 1], 1.0)


def test_logistic_means_have_linear_logits():
    draw = LogisticEnvironment(arms=2, dimension=4).draw(np.random.default_rng(11), 0, 100)
    logits = np.log(draw.mean_reward / (1 - draw.mean_reward))
    _, residual, _, _ = np.linalg.lstsq(draw.features.reshape(-1, 4), logits.ravel(), rcond=None)
    assert residual[0] < 1e-20


def test_the_sampled_optimum_agrees_with_an_even_grid_of_contexts():
    environment = BumpEnvironment(arms=2, dimension=1, resources=1)
    grid = (np.arange(2_000)[:, None] + 0.5) / 2_000
    means = environment.means(grid)
    exact = static_optimum(means[..., 0], means[..., 1:], 0.15).value
    assert environment.optimum(0.15) == pytest.approx(exact, rel=0.01)


def test_another_seed_of_the_sample_gives_nearly_the_same_optimum():
    environment = LinearEnvironment(arms=3, dimension=4, resources=2)
    assert environment.optimum(0.2, seed=1) == pytest.approx(environment.optimum(0.2), rel=0.01)
    assert environment.optimum(0.2, seed=1) != environment.optimum(0.2)


@pytest.mark.parametrize("kind", [LinearEnvironment, BumpEnvironment])
def test_another_seed_is_another_environment(kind):
    first, second = (kind(arms=2, dimension=2, resources=1, seed=seed) for seed in (0, 1))
    draws = [environment.draw(np.random.default_rng(0), 0, 1) for environment in (first, second)]
    assert not np.allclose(draws[0].mean_reward, draws[1].mean_reward)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PaperEnvironment(m=4, arms=3), "m must be at least 5"),
        (lambda: PaperEnvironment(m=5, arms=5), "above arms"),
        (lambda: LinearEnvironment(arms=2, dimension=2, resources=1, model="none"), "model must be"),
        (lambda: LinearEnvironment(arms=2, dimension=2, resources=1, outcomes="none"), "outcomes must be"),
        (lambda: LinearEnvironment(arms=2, dimension=2, resources=1, reward_scale=0.0), "reward_scale must lie"),
        (lambda: LogisticEnvironment(arms=2, dimension=1), "dimension must be"),
        (lambda: LogisticEnvironment(arms=2, dimension=2, rate=1.0), "rate must lie"),
        (lambda: BumpEnvironment(arms=2, dimension=4, resources=1), "dimension must be"),
    ],
)
def test_an_invalid_environment_is_refused_with_the_name_of_the_argument(make, message):
    with pytest.raises(ValueError, match=message):
        make()
