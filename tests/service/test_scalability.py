"""The fit of the universal scalability law."""

from math import inf

import pytest

from service.benchmark.scalability import Law, fitted


@pytest.mark.parametrize(("contention", "coherence"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.02), (0.2, 0.05), (1.2, 0.0)])
def test_a_law_is_found_in_the_throughput_it_predicts(contention, coherence):
    law = Law("", {}, 5_000.0, contention, coherence)
    found = fitted("", {count: law.throughput(count) for count in (1, 2, 3, 4)})
    assert found.rate == 5_000
    assert found.contention == pytest.approx(contention, abs=1e-9)
    assert found.coherence == pytest.approx(coherence, abs=1e-9)


def test_contention_and_coherence_are_not_negative():
    faster = fitted("", {1: 100.0, 2: 250.0, 3: 400.0})
    assert (faster.contention, faster.coherence, faster.best) == (0.0, 0.0, inf)
    concave = fitted("", {1: 100.0, 2: 100.0, 3: 140.0, 4: 180.0})
    assert concave.contention > 0
    assert concave.coherence == 0


def test_throughput_falls_beyond_the_best_number_of_replicas():
    law = Law("", {}, 100.0, 0.1, 0.1)
    assert law.best == pytest.approx(3.0)
    assert law.throughput(2) < law.throughput(3) > law.throughput(4)
