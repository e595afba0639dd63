"""The universal scalability law (Gunther 1993), fitted to measured throughput.

X(N) = λ N / (1 + σ (N - 1) + κ N (N - 1)): σ is contention (work that waits in line), κ coherence (what each replica
has to learn from every other).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from rich.table import Table


class Law(NamedTuple):
    """The law that fits best, with its data."""

    name: str
    points: Mapping[int, float]  # throughput by number of replicas
    rate: float  # λ, of one replica
    contention: float  # σ
    coherence: float  # κ

    def throughput(self, replicas: int) -> float:
        """Returns X(N).

        >>> Law("", {}, 100.0, 0.5, 0.0).throughput(2)
        133.33333333333334
        """
        others = replicas - 1
        return self.rate * replicas / (1 + self.contention * others + self.coherence * replicas * others)

    @property
    def best(self) -> float:
        """Returns the number of replicas beyond which throughput falls; infinite without coherence costs."""
        if self.coherence <= 0:
            return inf
        return max(1.0, sqrt(max(0.0, 1 - self.contention) / self.coherence))


def fitted(name: str, points: Mapping[int, float]) -> Law:
    """Returns the law with the least squares of N λ / X(N), the cost relative to one replica; σ and κ are not negative.

    λ is the throughput of one replica, which must be among the points.
    """
    rate = points[1]
    counts = np.array([count for count in points if count > 1], dtype=np.float64)
    costs = np.array([count * rate / points[count] for count in points if count > 1]) - 1
    terms = np.stack([counts - 1, counts * (counts - 1)], axis=1)
    best, least = (0.0, 0.0), float(costs @ costs)
    for used in ([0, 1], [0], [1]):  # the least squares under bounds are those of one of the subsets
        if len(used) > len(counts):
            continue
        found = np.linalg.lstsq(terms[:, used], costs, rcond=None)[0]
        rest = float(((terms[:, used] @ found - costs) ** 2).sum())
        if (found >= 0).all() and rest < least:
            values = dict(zip(used, found.tolist(), strict=True))
            best, least = (values.get(0, 0.0), values.get(1, 0.0)), rest
    return Law(name, dict(points), rate, *best)


def table_of(laws: Sequence[Law]) -> Table:
    """Returns the laws and their data for people."""
    table = Table(title="universal scalability law: X(N) = λN / (1 + σ(N - 1) + κN(N - 1))")
    for column in ("throughput", "measured, by replicas", "σ", "κ", "most at"):
        table.add_column(column)
    for law in laws:
        points = ", ".join(f"{count}: {rate:,.0f}" for count, rate in sorted(law.points.items()))
        best = f"{law.best:.1f} replicas" if law.best < inf else "no bound"
        table.add_row(law.name, points, f"{law.contention:.3f}", f"{law.coherence:.3f}", best)
    return table
