"""Kinds of worlds: generators of fresh random worlds, each determined by its seed."""

import numpy as np
import pytest

from cbwk_core import SquareCBwK
from cbwk_core.baselines import PricedThompson
from cbwk_core.problem import Problem
from cbwk_core.simulation import run
from cbwk_core.simulation.scenarios import scenarios

KINDS = [row for row in scenarios(0.1) if row.world is not None]
every_kind = pytest.mark.parametrize("row", KINDS, ids=lambda row: row.name)


@every_kind
def test_a_seed_determines_the_world_and_other_seeds_give_other_worlds(row):
    first, again, other = (row.world(seed, row.horizon) for seed in (3, 3, 4))
    draws = [world.draw(np.random.default_rng(0), 0, 50) for world in (first, again, other)]
    for one, same in zip(draws[0], draws[1], strict=True):
        np.testing.assert_array_equal(one, same)
    assert (draws[0].mean_reward != draws[2].mean_reward).any()
    assert hash(first) == hash(again)


@every_kind
def test_worlds_of_a_kind_have_one_shape_and_costs_within_the_declared_max_costs(row):
    hold = row.problem(row.environment.dimension).hold
    for seed in range(5):
        world = row.world(seed, row.horizon)
        for name in ("arms", "dimension", "resources", "model"):
            assert getattr(world, name) == getattr(row.environment, name)
        draw = world.draw(np.random.default_rng(seed), 0, 300)
        assert (draw.costs >= 0).all()
        assert (draw.costs <= hold + 1e-12).all()
        assert (draw.mean_reward >= 0).all()


@every_kind
def test_short_draws_give_the_same_rounds_as_one_long_draw(row):
    whole = row.environment.draw(np.random.default_rng(1), 0, 30)
    rng = np.random.default_rng(1)
    parts = [row.environment.draw(rng, start, 10) for start in (0, 10, 20)]
    for name in whole._fields:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(getattr(whole, name), joined, atol=1e-12)


@every_kind
def test_outcomes_have_the_means_that_the_regret_counts(row):
    draw = row.environment.draw(np.random.default_rng(2), 0, 4000)
    for outcome, mean in ((draw.reward, draw.mean_reward), (draw.costs, draw.mean_costs)):
        error = (outcome - mean).std(axis=0) / np.sqrt(4000)
        assert (np.abs((outcome - mean).mean(axis=0)) <= 5 * error + 1e-12).all()


@every_kind
def test_prices_of_the_binding_resources_are_positive(row):
    """A kind whose budget never binds would compare nothing but learning. Windows have prices of their own."""
    assert row.windows or (row.prices(range(2)).max(axis=1) > 0).all()


class TestBursts:
    HORIZON, BUDGET = 200, 30.0

    def problem(self):
        return Problem.of(arms=5, dimension=8, resources=2, horizon=self.HORIZON, budget=self.BUDGET)

    def row(self):
        return next(row for row in KINDS if row.burst > 1)

    def test_all_decisions_of_a_burst_are_made_from_one_state_and_committed_together(self):
        states, commits = [], []

        class Recorder(PricedThompson):
            def decide(self, state, features, uniforms):
                states.append(int(state.account.round[0]))
                return super().decide(state, features, uniforms)

            def commit(self, state, ticket):
                commits.append(ticket.round.reshape(-1, 2)[:, 0].tolist())
                return super().commit(state, ticket)

        policy = Recorder(problem=self.problem())
        run(policy, self.row().environment, horizon=200, budget=self.BUDGET, seeds=[1, 2], burst=50)
        assert states == [start for start in (0, 50, 100, 150) for _ in range(50)]
        assert commits == [list(range(start, start + 50)) for start in (0, 50, 100, 150)]

    @pytest.mark.parametrize("kind", ["peer", "practical"])
    def test_a_burst_never_overspends(self, kind):
        of = self.problem()
        policy = PricedThompson(problem=of)
        if kind == "practical":
            policy = SquareCBwK(arms=5, dimension=8, resources=2, horizon=self.HORIZON, budget=self.BUDGET)
        runs = run(policy, self.row().environment, horizon=200, budget=self.BUDGET, seeds=range(4), burst=50)
        assert (runs.overspend == 0).all()
        assert (runs.played > 20).all()
