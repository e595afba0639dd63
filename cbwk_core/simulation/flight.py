"""A flight that ends at a date: nobody knows how many rounds that will be, so the horizon is estimated from traffic."""

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

# As the service does it: the first guess, a renewal with every hundredth of the flight or when nearly all is used up.
HORIZON_UNKNOWN = 1_000
RENEWALS = 100
ROUNDS_MIN = 20
NEARLY_ALL = 0.9
# Points at which the cumulated traffic is known; rounds come between two of them evenly.
POINTS = 100_001


@lru_cache(maxsize=16)
def day_and_night(rounds: int, days: float = 7.0, swing: float = 0.8) -> Array:
    """When each round comes, in shares of the flight: traffic 1 + swing·cos(2π·day), so it begins at the daily peak.

    >>> times = day_and_night(rounds=8, days=1.0)
    >>> bool((times[1:] > times[:-1]).all() and times[0] > 0 and times[-1] < 1)
    True
    """
    share = np.linspace(0.0, 1.0, POINTS)
    turns = 2.0 * np.pi * days
    cumulated = share + swing * np.sin(turns * share) / turns
    return frozen(np.interp((np.arange(rounds) + 0.5) / rounds, cumulated / cumulated[-1], share))


def renewals(times: Array) -> Integers:
    """The estimates of a flight: (2, n), after how many rounds each is made and the horizon it says.

    >>> renewals(np.linspace(0.0, 1.0, 4_001)[1:])[:, -1]
    array([4000, 4001])
    """
    due, horizons = [0], [HORIZON_UNKNOWN]
    last = 0.0
    for rounds, now in enumerate(times.tolist(), start=1):
        aged = now - last >= 1.0 / RENEWALS and rounds >= ROUNDS_MIN
        if aged or rounds - due[-1] >= NEARLY_ALL * (horizons[-1] - due[-1]):
            due.append(rounds)
            horizons.append(max(rounds + 1, round(rounds / now)))
            last = now
    return np.array([due, horizons])


class FlightState(NamedTuple):
    """The policy's state, and which estimate is in force."""

    inner: states.State
    estimate: int


@dataclass(frozen=True)
class Flight:
    """A SquareCBwK whose horizon follows the traffic; `times` says when rounds come, in shares of the flight.

    >>> policy = SquareCBwK(arms=2, dimension=2, resources=1, horizon=1, budget=500.0)
    >>> flight = Flight(policy, tuple(day_and_night(2_000).tolist()))
    >>> flight.at(0).horizon
    1000
    """

    policy: SquareCBwK
    times: tuple[float, ...]

    @property
    def arms(self) -> int:
        """How many arms there are, without the null arm."""
        return self.policy.arms

    @property
    def resources(self) -> int:
        """How many budgets there are."""
        return self.policy.resources

    @property
    def model(self) -> str:
        """The policy's."""
        return self.policy.model

    def at(self, estimate: int) -> SquareCBwK:
        """The policy with that estimate."""
        return _with_horizon(self.policy, int(_renewals(self.times)[1, estimate]))

    def init(self, lanes: int = 1) -> FlightState:
        """The state before any round."""
        return FlightState(self.at(0).init(lanes), 0)

    def decide(self, state: FlightState, features: Array, uniforms: Array) -> Choice:
        """The policy's choice."""
        return self.at(state.estimate).decide(state.inner, features, uniforms)

    def commit(self, state: FlightState, ticket: Ticket) -> FlightState:
        """Count the decisions."""
        return state._replace(inner=self.at(state.estimate).commit(state.inner, ticket))

    def settle(
        self, state: FlightState, tickets: Ticket, rewards: Array, costs: Array, learn: Learn = True
    ) -> FlightState:
        """Book and learn outcomes."""
        return state._replace(inner=self.at(state.estimate).settle(state.inner, tickets, rewards, costs, learn))

    def cancel(self, state: FlightState, tickets: Ticket) -> FlightState:
        """Take decisions back."""
        return state._replace(inner=self.at(state.estimate).cancel(state.inner, tickets))

    def refresh_due(self, state: FlightState) -> bool:
        """Whether the next estimate is due."""
        due = _renewals(self.times)[0]
        return state.estimate + 1 < due.size and int(state.inner.round[0]) >= int(due[state.estimate + 1])

    def refresh(self, state: FlightState) -> FlightState:
        """Adopt the next estimate."""
        older, newer = self.at(state.estimate), self.at(state.estimate + 1)
        return FlightState(newer.adopt(older, state.inner), state.estimate + 1)


@lru_cache(maxsize=16)
def _renewals(times: tuple[float, ...]) -> Integers:
    return frozen(renewals(np.array(times)))


@lru_cache(maxsize=1024)
def _with_horizon(policy: SquareCBwK, horizon: int) -> SquareCBwK:
    return replace(policy, horizon=horizon)
