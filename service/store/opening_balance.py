"""What is kept of decisions that were pruned: the opening balance of a campaign's log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select

from service.store import tables


@dataclass(frozen=True, slots=True)
class ArmSums:
    """What the pruned decisions of one arm come to; `arm` is None for the null arm."""

    arm: str | None
    decisions: int = 0
    last: int = 0  # when it was played last
    rewards: int = 0
    reward: float = 0.0  # their sum, in [0, 1] each
    priced: int = 0  # decisions that moved `spent`
    spent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """Sums over the rows that were taken out of a campaign's log, all of them numbered `through` or less."""

    through: int
    spent: tuple[int, ...]  # per resource
    row_count: int = 0
    number_sum: int = 0
    last_number: int = 0
    last_at: int = 0
    decisions: int = 0
    arms: dict[str | None, ArmSums] = field(default_factory=dict)

    @property
    def plays(self) -> int:
        """Decisions for a real arm."""
        return sum(sums.decisions for arm, sums in self.arms.items() if arm is not None)

    def plus(self, decisions: Sequence[Any], outcomes: Sequence[Any]) -> Opening:
        """The opening with more decisions in it and all that became of them: rows of the tables, in their order."""
        arms, arm_of = dict(self.arms), {row["sequence"]: row["arm_id"] for row in decisions}
        nothing = (0,) * len(self.spent)
        for row in decisions:
            sums = arms.get(row["arm_id"], ArmSums(row["arm_id"], spent=nothing))
            last = max(sums.last, row["decided_at"])
            arms[row["arm_id"]] = replace(sums, decisions=sums.decisions + 1, last=last)
        spent, priced = self.spent, set[int]()
        for row in outcomes:
            arm = arm_of[row["decision"]]
            moved = nothing if row["spent"] is None else json.loads(row["spent"])
            spent = _sum(spent, moved)
            first = row["spent"] is not None and row["decision"] not in priced
            priced |= {row["decision"]} if first else set()
            taught = None if row["taught"] is None else json.loads(row["taught"])[0]
            sums = arms[arm]
            arms[arm] = replace(
                sums,
                rewards=sums.rewards + (taught is not None),
                reward=sums.reward + (taught or 0.0),
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
        )

    def columns(self) -> dict[str, Any]:
        """The columns of the table `opening` that change when rows go."""
        arms = [
            [sums.arm, sums.decisions, sums.last, sums.rewards, sums.reward, sums.priced, list(sums.spent)]
            for sums in self.arms.values()
        ]
        return {
            "row_count": self.row_count,
            "number_sum": self.number_sum,
            "last_number": self.last_number,
            "last_at": self.last_at,
            "decisions": self.decisions,
            "spent": json.dumps(self.spent),
            "arms": json.dumps(arms),
        }


def _sum(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def opening_of(connection: Connection, number: int) -> Opening | None:
    """The opening of a campaign, None where nothing was ever pruned."""
    opening = tables.opening
    columns = [column for column in opening.c if column.name not in ("campaign", "state")]
    row = connection.execute(select(*columns).where(opening.c.campaign == number)).mappings().first()
    if row is None:
        return None
    arms = [
        ArmSums(arm, decisions, last, rewards, reward, priced, tuple(spent))
        for arm, decisions, last, rewards, reward, priced, spent in json.loads(row["arms"])
    ]
    return Opening(
        through=row["through"],
        spent=tuple(json.loads(row["spent"])),
        row_count=row["row_count"],
        number_sum=row["number_sum"],
        last_number=row["last_number"],
        last_at=row["last_at"],
        decisions=row["decisions"],
        arms={sums.arm: sums for sums in arms},
    )


def opening_state(connection: Connection, number: int) -> Any:
    """Where the log is whole again: `through`, the versions and the policy's state there, as columns; None as above."""
    opening = tables.opening
    columns = (opening.c.through, opening.c.config_version, opening.c.model_version, opening.c.state, opening.c.spent)
    return connection.execute(select(*columns).where(opening.c.campaign == number)).mappings().first()
