"""A campaign flight with an end date: its number of rounds is unknown, so the horizon is estimated from the traffic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cbwk_core import state as states
from cbwk_core.arrays import Array, Integers, frozen
from cbwk_core.baselines.policy import Learn
from cbwk_core.policy import SquareCBwK
from cbwk_core.ticket import Choice, Ticket

# The estimates follow the same rules as in the service: a fixed first guess, then a new estimate after every hundredth
# of the flight, or earlier when 90 % of the rounds that the last estimate predicted are over.
FIRST_HORIZON = 1_000
ESTIMATES_PER_FLIGHT = 100
ROUNDS_MIN = 20
USED_SHARE_MAX = 0.9
# Points of the table of cumulated traffic, which is interpolated.
TRAFFIC_POINTS = 100_001


@lru_cache(maxsize=16)
def day_and_night(rounds: int, days: float = 7.0, swing: float = 0.8) -> Array:
    """Return the time of each round as a share of the flight.

    The traffic is proportional to 1 + swing·cos(2π·day), so the flight starts at the daily peak.

    >>> times = day_and_night(rounds=8, days=1.0)
    >>> bool((times[1:] > times[:-1]).all() and times[0] > 0 and times[-1] < 1)
    True
    """
    share = np.linspace(0.0, 1.0, TRAFFIC_POINTS)
    turns = 2.0 * np.pi * days
    cumulated = share + swing * np.sin(turns * share) / turns
    return frozen(np.interp((np.arange(rounds) + 0.5) / rounds, cumulated / cumulated[-1], share))


def horizon_estimates(times: Array) -> Integers:
    """Return the horizon estimates of a flight, (2, n): the rounds after which they are made, and the horizons.

    >>> horizon_estimates(np.linspace(0.0, 1.0, 4_001)[1:])[:, -1]
    array([4000, 4001])
    """
    due, horizons = [0], [FIRST_HORIZON]
    last_time = 0.0
    for rounds, now in enumerate(times.tolist(), start=1):
        is_old = now - last_time >= 1.0 / ESTIMATES_PER_FLIGHT and rounds >= ROUNDS_MIN
        if is_old or rounds - due[-1] >= USED_SHARE_MAX * (horizons[-1] - due[-1]):
            due.append(rounds)
            horizons.append(max(rounds + 1, round(rounds / now)))
            last_time = now
    return np.array([due, horizons])


class FlightState(NamedTuple):
    """The state of the policy and the number of the current estimate."""

    inner: states.State
    estimate: int


@dataclass(frozen=True)
class Flight:
    """A SquareCBwK policy whose horizon is estimated from the traffic.

    times: the time of each round as a share of the flight.

    >>> policy = SquareCBwK(arms=2, dimension=2, resources=1, horizon=1, budget=500.0)
    >>> flight = Flight(policy, tuple(day_and_night(2_000).tolist()))
    >>> flight.policy_at(0).horizon
    1000
    """

    policy: SquareCBwK
    times: tuple[float, ...]

    @property
    def arms(self) -> int:
        """Number of arms, without the null arm."""
        return self.policy.arms

    @property
    def resources(self) -> int:
        """Number of resources."""
        return self.policy.resources

    @property
    def model(self) -> str:
        """The model of the policy."""
        return self.policy.model

    def policy_at(self, estimate: int) -> SquareCBwK:
        """Return the policy with the horizon of this estimate."""
        return _with_horizon(self.policy, int(_cached_estimates(self.times)[1, estimate]))

    def init(self, lanes: int = 1) -> FlightState:
        """Return the state before the first round."""
        return FlightState(self.policy_at(0).init(lanes), 0)

    def decide(self, state: FlightState, features: Array, uniforms: Array) -> Choice:
        """Return the choice of the policy."""
        return self.policy_at(state.estimate).decide(state.inner, features, uniforms)

    def commit(self, state: FlightState, ticket: Ticket) -> FlightState:
        """Return the state after the decisions are counted."""
        return state._replace(inner=self.policy_at(state.estimate).commit(state.inner, ticket))

    def settle(
        self, state: FlightState, tickets: Ticket, rewards: Array, costs: Array, learn: Learn = True
    ) -> FlightState:
        """Return the state after the outcomes are booked and learnt."""
        return state._replace(inner=self.policy_at(state.estimate).settle(state.inner, tickets, rewards, costs, learn))

    def cancel(self, state: FlightState, tickets: Ticket) -> FlightState:
        """Return the state after the decisions are cancelled."""
        return state._replace(inner=self.policy_at(state.estimate).cancel(state.inner, tickets))

    def refresh_due(self, state: FlightState) -> bool:
        """Return whether the next estimate is due."""
        due = _cached_estimates(self.times)[0]
        return state.estimate + 1 < due.size and int(state.inner.round[0]) >= int(due[state.estimate + 1])

    def refresh(self, state: FlightState) -> FlightState:
        """Return the state of the policy with the next estimate."""
        older, newer = self.policy_at(state.estimate), self.policy_at(state.estimate + 1)
        return FlightState(newer.adopt(older, state.inner), state.estimate + 1)


@lru_cache(maxsize=16)
def _cached_estimates(times: tuple[float, ...]) -> Integers:
    return frozen(horizon_estimates(np.array(times)))


@lru_cache(maxsize=1024)
def _with_horizon(policy: SquareCBwK, horizon: int) -> SquareCBwK:
    return replace(policy, horizon=horizon)
