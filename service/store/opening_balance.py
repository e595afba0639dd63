"""The opening balance of a campaign's log: the sums of the decisions that were pruned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from service.store import tables
from service.times import HOURS_PER_WEEK, MICROS_PER_HOUR, hour_of_week

_COUNTS = ("row_count", "number_sum", "last_number", "last_at", "decisions")


class ArmSums(NamedTuple):
    """The sums of the pruned decisions of one arm; `arm` is None for the null arm. Stored as a JSON array."""

    arm: str | None
    decisions: int = 0
    last: int = 0  # the time of the last play
    rewards: int = 0
    reward: float = 0.0  # their sum, in [0, 1] each
    priced: int = 0  # decisions that changed `spent`
    spent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """Sums over the rows that were deleted from a campaign's log, all numbered `through` or less."""

    through: int
    spent: tuple[int, ...]  # per resource
    row_count: int = 0
    number_sum: int = 0
    last_number: int = 0
    last_at: int = 0
    decisions: int = 0
    arms: dict[str | None, ArmSums] = field(default_factory=dict)
    traffic: tuple[int, ...] = (0,) * HOURS_PER_WEEK  # decisions by hour of the week

    @property
    def plays(self) -> int:
        """Decisions for a real arm."""
        return sum(sums.decisions for arm, sums in self.arms.items() if arm is not None)

    def plus(self, decisions: Sequence[Any], outcomes: Sequence[Any]) -> Opening:
        """The opening with more decisions and all their outcomes: rows of the tables, in their order."""
        arms, arm_of = dict(self.arms), {row["sequence"]: row["arm_id"] for row in decisions}
        zero, traffic = (0,) * len(self.spent), [*self.traffic]
        for row in decisions:
            traffic[hour_of_week(row["decided_at"])] += 1
            sums = arms.get(row["arm_id"], ArmSums(row["arm_id"], spent=zero))
            last = max(sums.last, row["decided_at"])
            arms[row["arm_id"]] = sums._replace(decisions=sums.decisions + 1, last=last)
        spent, priced = self.spent, set[int]()
        for row in outcomes:
            arm = arm_of[row["decision"]]
            moved = zero if row["spent"] is None else json.loads(row["spent"])
            spent = _sum(spent, moved)
            first = row["spent"] is not None and row["decision"] not in priced
            priced |= {row["decision"]} if first else set()
            reward = None if row["taught"] is None else json.loads(row["taught"])[0]
            sums = arms[arm]
            arms[arm] = sums._replace(
                rewards=sums.rewards + (reward is not None),
                reward=sums.reward + (reward or 0.0),
                priced=sums.priced + first,
                spent=_sum(sums.spent, moved),
            )
        ends = [(row["sequence"], row["decided_at"]) for row in decisions]
        ends += [(row["sequence"], row["at"]) for row in outcomes]
        return Opening(
            through=self.through,
            spent=spent,
            row_count=self.row_count + len(ends),
            number_sum=self.number_sum + sum(number for number, _ in ends),
            last_number=max(self.last_number, *(number for number, _ in ends)),
            last_at=max(self.last_at, *(at for _, at in ends)),
            decisions=self.decisions + len(decisions),
            arms=arms,
            traffic=tuple(traffic),
        )

    def columns(self) -> dict[str, Any]:
        """The columns of the table `opening` that change when rows are deleted."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        texts = {"spent": self.spent, "arms": [*self.arms.values()], "traffic": self.traffic}
        return counts | {name: json.dumps(value) for name, value in texts.items()}


def _sum(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def opening_of(connection: Connection, number: int) -> Opening | None:
    """The opening of a campaign; None if nothing was pruned."""
    opening = tables.opening
    columns = [opening.c[name] for name in ("through", *_COUNTS, "spent", "arms", "traffic")]
    row = connection.execute(select(*columns).where(opening.c.campaign == number)).mappings().first()
    if row is None:
        return None
    sums = [ArmSums(*values) for values in json.loads(row["arms"])]
    arms = {each.arm: each._replace(spent=tuple(each.spent)) for each in sums}
    if row["traffic"] is None:  # the times of the pruned decisions are not known: an even rate
        traffic = tuple((row["decisions"] + hour) // HOURS_PER_WEEK for hour in range(HOURS_PER_WEEK))
    else:
        traffic = tuple(json.loads(row["traffic"]))
    return Opening(**{**row, "spent": tuple(json.loads(row["spent"])), "arms": arms, "traffic": traffic})


def decisions_by_hour(connection: Connection, number: int) -> list[int]:
    """A campaign's decisions by hour of the week, by its log and its opening. The time grows with the log."""
    decision, opening = tables.decision, opening_of(connection, number)
    hour = (decision.c.decided_at // MICROS_PER_HOUR % HOURS_PER_WEEK).label("hour")
    found = [0] * HOURS_PER_WEEK if opening is None else [*opening.traffic]
    query = select(hour, func.count()).where(decision.c.campaign == number).group_by(hour)
    for at, count in connection.execute(query):
        found[at] += count
    return found


def opening_state(connection: Connection, number: int) -> Any:
    """Where the log is whole again: `through`, versions, the policy's state, `spent`, `limits`, as columns; or None."""
    opening = tables.opening
    names = ("through", "config_version", "model_version", "state", "spent", "limits")
    columns = [opening.c[name] for name in names]
    return connection.execute(select(*columns).where(opening.c.campaign == number)).mappings().first()
