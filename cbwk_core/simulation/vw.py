"""Vowpal Wabbit's SquareCB with a hard stop: what somebody would run who has a bandit and no budgets.

Needs the package vowpalwabbit, which `cbwk[bench]` installs. A workspace learns in place, so a state of this policy is
not one to go back to: the runner never does.
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
# One context for all arms needs the products of context and arm to tell the arms apart.
OPTIONS = {
    "per_arm": "--cb_explore_adf --squarecb -q sa --quiet",
    "shared": "--cb_explore_adf --squarecb --quiet",
}


class Asked(NamedTuple):
    """A decision that waits for its outcome."""

    lines: list[str]
    action: int  # among the lines of actions
    probability: float


class VowpalState(NamedTuple):
    """One workspace for each lane, and what it was asked by the number of the round."""

    account: Account
    workspaces: tuple[Any, ...]
    asked: tuple[dict[int, Asked], ...]


@dataclass(frozen=True, kw_only=True)
class VowpalSquareCB(Baseline):
    """SquareCB on the reward with VW's own defaults, over text; null only where no arm can be paid."""

    problem: Problem
    model: str = "shared"

    @cached_property
    def _workspace(self) -> Any:
        return import_module("vowpalwabbit").Workspace

    def init(self, lanes: int = 1) -> VowpalState:
        """The state before any round."""
        workspaces = tuple(self._workspace(OPTIONS[self.model]) for _ in range(lanes))
        return VowpalState(accounts.new_account(self.problem, lanes), workspaces, tuple({} for _ in range(lanes)))

    def decide(self, state: VowpalState, features: ArrayLike, uniforms: ArrayLike) -> Choice:
        """One arm per lane, drawn with VW's probabilities among the arms that can be paid."""
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
            said = np.array(state.workspaces[lane].predict(lines[lane]))
            probabilities[lane, np.flatnonzero(allowed[lane])] = said / said.sum()
        column = sample(probabilities, probabilities.argmax(axis=1), finite("uniforms", uniforms, (lanes,)))
        for lane in range(lanes):
            if column[lane] < self.arms:
                action = int(allowed[lane, : column[lane]].sum())
                number = int(state.account.round[lane])
                state.asked[lane][number] = Asked(lines[lane], action, probabilities[lane, column[lane]])
        nothing = np.zeros((lanes, self.arms, 1 + self.resources))  # VW tells probabilities only
        return self.answer(state, x, nothing, allowed, column, probabilities)

    def _lines(self, features: Array, allowed: NDArray[np.int64]) -> list[str]:
        if self.model == "shared":
            return [f"|a {_words(features[arm])}" for arm in allowed]
        return [f"shared |s {_words(features)}", *(f"|a arm{arm}" for arm in allowed)]

    def commit(self, state: VowpalState, ticket: Ticket) -> VowpalState:
        """Count the round and hold what the arm may cost."""
        return state._replace(account=accounts.committed(state.account, ticket.arm))

    def settle(
        self, state: VowpalState, tickets: Ticket, rewards: ArrayLike, costs: ArrayLike, learn: Learn = True
    ) -> VowpalState:
        """Book the costs, and tell the workspaces of the rewards they may learn from."""
        rows, lanes = tickets.arm.size, len(state.workspaces)
        y, c = finite("rewards", rewards, (rows,)), finite("costs", costs, (rows, self.resources))
        learnt = np.broadcast_to(np.asarray(learn), (rows,))
        for row in np.flatnonzero(tickets.arm != NULL_ARM):
            lane = row % lanes
            asked = state.asked[lane].pop(int(tickets.round[row]))
            if learnt[row]:
                at = len(asked.lines) - self._actions(asked) + asked.action
                label = f"{asked.action}:{-y[row]:.7g}:{asked.probability:.7g} "
                state.workspaces[lane].learn([*asked.lines[:at], label + asked.lines[at], *asked.lines[at + 1 :]])
        return state._replace(account=accounts.settled(state.account, tickets.arm, c))

    def _actions(self, asked: Asked) -> int:
        return len(asked.lines) - (self.model == "per_arm")

    def cancel(self, state: VowpalState, tickets: Ticket) -> VowpalState:
        """Give the holds back; nothing is learnt."""
        for row in np.flatnonzero(tickets.arm != NULL_ARM):
            state.asked[row % len(state.workspaces)].pop(int(tickets.round[row]))
        return state._replace(account=accounts.cancelled(state.account, tickets.arm))


def _words(values: Array) -> str:
    """Seven digits are all that VW's single precision holds."""
    return " ".join(f"f{index}:{value:.7g}" for index, value in enumerate(values))
