"""Runs on a clock with windows: their accounts, their paces and T·OPT with the windows in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from cbwk_core.rules.traffic import MICROS_PER_HOUR, expected_rounds, no_traffic, plus
from cbwk_core.simulation import suite
from cbwk_core.simulation.calendar import CalendarLedger, Window, flight, limits_of, period_prices
from cbwk_core.simulation.dual_regret import sampled_means
from cbwk_core.simulation.kinds import one_resource
from cbwk_core.simulation.ledger import Ledger, Limits, Prices
from cbwk_core.simulation.runner import run
from cbwk_core.simulation.scenarios import PRICED_POLICIES, scenarios
from cbwk_core.static_optimum import static_optimum

ROWS = [row for row in scenarios(0.1) if row.windows]


def clock(micros):
    """The number of the day, and the hour of the day."""
    passed = timedelta(microseconds=int(micros))
    return passed.days, passed.seconds // 3600


@pytest.mark.parametrize("row", ROWS[1::2], ids=[row.name for row in ROWS[1::2]])
@pytest.mark.parametrize("name", PRICED_POLICIES)
def test_no_policy_spends_more_than_its_limit_in_any_period(row, name):
    seeds, spent, times = range(2), {}, []

    class Recording(CalendarLedger):
        def book(self, number, costs):
            for lane, cost in enumerate(costs[:, 0].tolist()):
                day, hour = clock(times[lane][number])
                key = lane, day, hour if row.windows[0].hours == 1 else 0
                spent[key] = spent.get(key, 0.0) + cost
            super().book(number, costs)

    flights = [flight(seed, row.horizon, row.days) for seed in seeds]
    times = [each.times for each in flights]
    ledger = Recording(np.array(row.budget), row.windows, flights, row.days)
    environments = row.environments(seeds)
    runs = run(row.policy(name), environments, horizon=row.horizon, budget=row.budget, seeds=seeds, ledger=ledger)
    (window,) = row.windows
    limit = window.rho * row.horizon * window.hours / (row.days * 24)
    assert max(spent.values()) <= limit + 1e-9
    assert max(spent.values()) > 0.5 * limit
    assert sum(spent.values()) == pytest.approx(runs.spent.sum())
    assert (runs.overspend == 0).all()
    assert ledger.overrun == 0


def test_a_flight_has_busy_days_quiet_nights_and_all_its_rounds():
    nights, days = [], []
    for seed in range(20):
        found = flight(seed, horizon=3_000, days=7)
        assert len(found.times) == 3_000
        assert found.times[0] >= found.start
        assert found.times[-1] < found.start + 7 * 24 * MICROS_PER_HOUR
        by_hour = np.sort(np.bincount([clock(micros)[1] for micros in found.times], minlength=24))
        nights.append(by_hour[:8].sum())
        days.append(by_hour[-8:].sum())
    assert sum(days) > 3 * sum(nights)
    assert (flight(3, 500, 7).times == flight(3, 500, 7).times).all()
    assert len({flight(seed, 500, 7).start for seed in range(9)}) > 4


def test_a_pace_is_what_is_left_over_the_rounds_to_expect_by_the_traffic_of_its_lane():
    flights = [flight(seed, 400, 3) for seed in range(2)]
    windows = [Window(0, 24, 0.2), Window(0, 1, 0.3)]
    ledger, rng, counts = CalendarLedger(np.array([90.0]), windows, flights, 3), np.random.default_rng(0), {}
    spent = {}
    for number in range(400):
        offered = ledger.offer(number)
        for lane, found in enumerate(flights):
            now, since = int(found.times[number]), found.start - MICROS_PER_HOUR
            day, hour = clock(now)
            expected = []
            for length, key, rho in ((24, (lane, day), 0.2), (1, (lane, day, hour), 0.3)):
                micros = length * MICROS_PER_HOUR
                end, limit = (now // micros + 1) * micros, rho * 400 * length / 72
                rounds = expected_rounds(counts.get(lane, no_traffic()), since, now, end)
                left = max(limit - spent.get(key, 0.0), 0.25 * limit * (end - now) / micros)
                expected.append(left / max(1.0, min(400 - number, rounds)))
            assert offered["pace"][lane, 0] == pytest.approx(min(expected))
        costs = rng.random((2, 1)) * 0.3
        for lane, found in enumerate(flights):
            day, hour = clock(found.times[number])
            for key in ((lane, day), (lane, day, hour)):
                spent[key] = spent.get(key, 0.0) + costs[lane, 0]
            counts[lane] = plus(counts.get(lane, no_traffic()), 1, int(found.times[number]))
        ledger.book(number, costs)


@pytest.mark.parametrize("rho", [0.3, 0.12])
def test_the_bound_is_the_optimum_of_the_program_with_every_period_as_a_constraint(rho):
    """The program as a whole: each context in each period, and a resource for the budget and for each period."""
    environment, horizon = one_resource(5, 600), 600
    flights = [flight(5, horizon, 5)]
    (limits,) = limits_of([Window(0, 24, 0.2)], flights, 5)
    rewards, costs = (means[::16] for means in sampled_means(environment, horizon))
    periods, rounds = np.unique(limits.number[:, 0], return_counts=True)
    blocks = np.zeros((len(periods), *rewards.shape, 1 + len(periods)))
    blocks[..., 0] = costs[..., 0]
    for period in periods:
        blocks[period, ..., 1 + period] = costs[..., 0]
    weights = np.repeat(rounds / horizon / len(rewards), len(rewards))
    budgets = np.array([rho * horizon, *limits.amount]) / horizon
    whole = static_optimum(np.tile(rewards, (len(periods), 1)), blocks.reshape(-1, *blocks.shape[2:]), budgets, weights)
    prices = period_prices([environment], rho * horizon, limits, horizon)
    bound = prices.budget[0, 0] * rho * horizon + prices.limits[0] @ limits.amount
    for period, count in zip(periods, rounds, strict=True):
        price = prices.budget[0, 0] + prices.limits[0][period]
        bound += count * np.maximum((rewards - price * costs[..., 0]).max(axis=1), 0.0).mean()
    assert whole.value * horizon - 1e-6 <= bound <= 1.003 * whole.value * horizon
    assert (prices.budget[0, 0] > 0) == (rho == 0.12)
    np.testing.assert_allclose(prices.limits[0], whole.prices[1:], atol=0.1 * whole.prices.max())


def test_accounts_of_several_lanes_are_shared_and_their_worth_is_divided_among_them():
    shared = Limits(0, np.array([10.0]), np.zeros((4, 3), dtype=np.int64))
    ledger = Ledger(np.array([8.0]), 3, [shared])
    ledger.book(0, np.array([[3.0], [0.0], [4.0]]))
    assert ledger.offer(1)["free"].ravel().tolist() == [1.0, 1.0, 1.0]
    prices = Prices(np.array([[1.0], [0.0], [0.0]]), [np.array([0.5])])
    assert ledger.total_worth(prices, np.array([8.0])).tolist() == pytest.approx([8 + 5 / 3, 5 / 3, 5 / 3])
    assert ledger.worth_of_rest(prices).tolist() == pytest.approx([5 + 0.5, 0.5, 0.5])
    assert prices.of_rounds([shared])[:, :, 0].tolist() == [[1.5, 0.5, 0.5]] * 4
    ledger.book(1, np.array([[0.0], [4.0], [0.0]]))
    assert ledger.overrun == 1.0


def test_windows_bind_and_known_means_lose_less_than_a_peer():
    row = replace(ROWS[0], horizon=2 * ROWS[0].horizon)
    task = suite.Task(row, "lagrange", 2)
    known, peer = suite.measure(task._replace(policy=suite.KNOWN_MEANS)), suite.measure(task)
    assert 0.0 < known.cell.regret < peer.cell.regret < 0.5
    assert known.cell.overspend == peer.cell.overspend == 0.0
    (limits,) = row.ledger(range(2)).limits
    assert (period_prices(row.environments(range(2)), row.budget[0], limits, row.horizon).limits[0] > 0).mean() > 0.2


def test_a_ledger_is_for_runs_without_bursts():
    row = ROWS[0]
    with pytest.raises(ValueError, match="without delays and bursts"):
        run(row.policy("lagrange"), row.environment, horizon=9, budget=9, seeds=[0], burst=3, ledger=row.ledger([0]))
