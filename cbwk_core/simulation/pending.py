"""Outcomes that are not known yet: whole ones, or their rewards alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cbwk_core.arrays import Array, Integers
from cbwk_core.baselines.policy import Learn, Policy, State
from cbwk_core.simulation.delays import Delays
from cbwk_core.ticket import Ticket


class Outcome(NamedTuple):
    """The arguments of `settle` for one round of all lanes."""

    ticket: Ticket
    rewards: Array
    costs: Array
    learn: Learn


class PendingOutcomes:
    """Outcomes that are not settled yet, by the round in which they become known."""

    def __init__(self, delay: Integers | None) -> None:
        self._delay = delay
        self._due: dict[int, list[Outcome]] = {}

    def add(self, policy: Policy[State], state: State, now: int, outcome: Outcome) -> State:
        """Add the outcome of a round and return the state after what is known of it at once: nothing."""
        del policy
        due = now if self._delay is None else now + int(self._delay[now])
        self._due.setdefault(due, []).append(outcome)
        return state

    def settle(self, policy: Policy[State], state: State, outcome: Outcome) -> State:
        """Return the state after an outcome that is due."""
        return policy.settle(state, *outcome)

    def pop_known(self, now: int) -> list[Outcome]:
        """Return the outcomes that are due in this round."""
        return self._due.pop(now, [])

    def pop_all(self) -> Iterator[Outcome]:
        """Yield all outcomes in the order in which they are due."""
        for due in sorted(self._due):
            yield from self._due.pop(due)

    def __bool__(self) -> bool:
        return bool(self._due)


class PendingRewards(PendingOutcomes):
    """Outcomes whose costs are settled in the round of the decision, and whose rewards are not known yet."""

    def add(self, policy: Any, state: State, now: int, outcome: Outcome) -> State:
        """Add the outcome and return the state after its costs, which a policy learns now if it can."""
        super().add(policy, state, now, outcome)
        settled: State = policy.settle(state, *outcome[:3], learn=False)
        if not _learns_costs_first(policy):
            return settled
        taught: State = policy.teach(settled, *outcome[:3], learn_reward=False, learn_costs=outcome.learn)
        return taught

    def settle(self, policy: Any, state: State, outcome: Outcome) -> State:
        """Return the state after a reward that is due."""
        learn_costs = False if _learns_costs_first(policy) else outcome.learn
        taught: State = policy.teach(state, *outcome[:3], learn_reward=outcome.learn, learn_costs=learn_costs)
        return taught


def _learns_costs_first(policy: object) -> bool:
    return getattr(policy, "learns_costs_first", False)


def pending_outcomes(policy: Policy[Any], delays: Delays | None, horizon: int) -> PendingOutcomes:
    """Return what collects the outcomes of a run with these delays."""
    if delays is None:
        return PendingOutcomes(None)
    if not delays.costs_at_once:
        return PendingOutcomes(delays.per_round(horizon))
    if not hasattr(policy, "teach"):
        raise ValueError(f"costs_at_once needs a policy that has `teach`, got {type(policy).__name__}")
    return PendingRewards(delays.per_round(horizon))
