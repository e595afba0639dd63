"""Vowpal Wabbit's SquareCB, stopped when the budget is exhausted: a bandit that does not know of budgets.

This module needs the package vowpalwabbit, which `cbwk[bench]` installs. A workspace learns in place, so an older state
of this policy cannot be used again. The runner never does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbwk_core.arrays import Array, finite
from cbwk_core.baselines import account as accounts
from cbwk_core.baselines.account import Account
from cbwk_core.baselines.baseline import Baseline
from cbwk_core.baselines.policy import Learn
from cbwk_core.problem import Problem
from cbwk_core.rules.inverse_gap import sample
from cbwk_core.ticket import NULL_ARM, Choice, Ticket

IS_INSTALLED = find_spec("vowpalwabbit") is not None
# With one context for all arms, VW needs the products of context and arm features to distinguish the arms.
OPTIONS = {
    "per_arm": "--cb_explore_adf --squarecb -q sa --quiet",
    "shared": "--cb_explore_adf --squarecb --quiet",
}


class PendingExample(NamedTuple):
    """The example of a decision whose outcome is not known yet."""

    lines: list[str]
    action: int  # index among the action lines
    probability: float


class VowpalState(NamedTuple):
    """One workspace per lane, and the pending examples of every lane by round number."""

    account: Account
    workspaces: tuple[Any, ...]
    pending: tuple[dict[int, PendingExample], ...]


@dataclass(frozen=True, kw_only=True)
class VowpalSquareCB(Baseline):
    """SquareCB on the reward with VW's defaults. It plays the null arm only if the budget allows no other arm."""

    problem: Problem
    model: str = "shared"

    @cached_property
    def _workspace(self) -> Any:
        return import_module("vowpalwabbit").Workspace

    def init(self, lanes: int = 1) -> VowpalState:
        """Return the state before the first round."""
        workspaces = tuple(self._workspace(OPTIONS[self.model]) for _ in range(lanes))
        return VowpalState(accounts.new_account(self.problem, lanes), workspaces, tuple({} for _ in range(lanes)))

    def decide(self, state: VowpalState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """Return one arm per lane, drawn with VW's probabilities among the arms that the budget allows."""
        lanes = len(state.workspaces)
        shape = (self.problem.dimension,) if self.model == "per_arm" else (self.arms, self.problem.dimension)
        x = finite("features", features, (lanes, *shape))
        allowed = accounts.playable(self.problem, state.account)
        probabilities = np.zeros((lanes, self.arms + 1))
        lines = [self._lines(x[lane], np.flatnonzero(allowed[lane])) for lane in range(lanes)]
        for lane in range(lanes):
            if not allowed[lane].any():
                probabilities[lane, -1] = 1.0
                continue
            predicted = np.array(state.workspaces[lane].predict(lines[lane]))
            probabilities[lane, np.flatnonzero(allowed[lane])] = predicted / predicted.sum()
        column = sample(probabilities, probabilities.argmax(axis=1), finite("uniforms", uniforms, (lanes,)))
        for lane in range(lanes):
            if column[lane] < self.arms:
                action = int(allowed[lane, : column[lane]].sum())
                number = int(state.account.round[lane])
                state.pending[lane][number] = PendingExample(lines[lane], action, probabilities[lane, column[lane]])
        no_predictions = np.zeros((lanes, self.arms, 1 + self.resources))  # VW returns probabilities only
        return self.answer(state, x, no_predictions, allowed, column, probabilities)

    def _lines(self, features: Array, allowed: NDArray[np.int64]) -> list[str]:
        if self.model == "shared":
            return [f"|a {_format_features(features[arm])}" for arm in allowed]
        return [f"shared |s {_format_features(features)}", *(f"|a arm{arm}" for arm in allowed)]

    def commit(self, state: VowpalState, ticket: Ticket) -> VowpalState:
        """Return the state after the round is counted and the max cost of the arm is held."""
        return state._replace(account=accounts.committed(state.account, ticket.arm))

    def settle(
        self, state: VowpalState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> VowpalState:
        """Return the state after the costs are booked. The workspaces learn the rewards in place."""
        rows, lanes = tickets.arm.size, len(state.workspaces)
        y, c = finite("rewards", rewards, (rows,)), finite("costs", costs, (rows, self.resources))
        learnt = np.broadcast_to(np.asarray(learn), (rows,))
        for row in np.flatnonzero(tickets.arm != NULL_ARM):
            lane = row % lanes
            pending = state.pending[lane].pop(int(tickets.round[row]))
            if learnt[row]:
                line = len(pending.lines) - self._action_count(pending) + pending.action
                label = f"{pending.action}:{-y[row]:.7g}:{pending.probability:.7g} "
                state.workspaces[lane].learn(
                    [*pending.lines[:line], label + pending.lines[line], *pending.lines[line + 1 :]]
                )
        return state._replace(account=accounts.settled(state.account, tickets.arm, c))

    def _action_count(self, pending: PendingExample) -> int:
        return len(pending.lines) - (self.model == "per_arm")

    def cancel(self, state: VowpalState, tickets: Ticket) -> VowpalState:
        """Return the state after the holds are released. Nothing is learnt."""
        for row in np.flatnonzero(tickets.arm != NULL_ARM):
            state.pending[row % len(state.workspaces)].pop(int(tickets.round[row]))
        return state._replace(account=accounts.cancelled(state.account, tickets.arm))


def _format_features(values: Array) -> str:
    """Format features for VW, with seven digits: VW uses single precision."""
    return " ".join(f"f{index}:{value:.7g}" for index, value in enumerate(values))
