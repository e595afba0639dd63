"""How far Newton's A⁻¹ drifts from the inverse of A in a million updates.

`python -m tests.benchmarks.proof_newton_drift` takes about a minute and exits with 1 if the drift exceeds 1e-6. The
last update comes just before a refactoring would repair the inverse.
"""

import sys
import time

import numpy as np

from cbwk_core.oracles.newton import REFACTOR_EVERY, Newton

DRIFT_MAX = 1e-6
BATCH_ROWS = 10_000


def drift(*, updates: int, dimension: int) -> float:
    """Return the largest deviation of A⁻¹ from the inverse of the summed rows, relative to its largest entry."""
    rng = np.random.default_rng(1)
    oracle = Newton(dimension=dimension, targets=1)
    state, gram = oracle.init(), np.eye(dimension)
    scales = np.geomspace(1.0, 0.01, dimension)  # some directions have ten thousand times the information of others
    for start in range(0, updates, BATCH_ROWS):
        x = rng.standard_normal((min(BATCH_ROWS, updates - start), dimension)) * scales
        state = oracle.update(state, x, rng.random((x.shape[0], 1)))
        gram += x.T @ x
    exact = np.linalg.inv(gram)
    return float(np.abs(state.inverse[0, 0] - exact).max() / np.abs(exact).max())


def main() -> int:
    """Measure and print; returns 1 if the drift is too large."""
    updates, dimension = 1_000_000 + REFACTOR_EVERY - 1, 20
    started = time.perf_counter()
    measured = drift(updates=updates, dimension=dimension)
    seconds = time.perf_counter() - started
    print(f"{updates:,} updates with m = {dimension} in {seconds:.0f} s")
    print(f"relative drift {measured:.1e}, at most {DRIFT_MAX:.0e} is allowed")
    return 0 if measured < DRIFT_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
