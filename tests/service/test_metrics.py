"""Metrics that are counted without locks look like those of prometheus_client."""

import random

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from service.metrics import Distribution, Metrics


def exposed(registry):
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_a_distribution_is_exposed_like_a_histogram_of_the_library():
    bounds, draw = (0.001, 0.5, 1, 20), random.Random(3)
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Distribution("times", "How long.", bounds)
    ours.register(mine)
    library = Histogram("times", "How long.", buckets=bounds, registry=theirs)
    assert exposed(ours) == exposed(theirs)
    for value in (*bounds, 0.0, 1e9, *(draw.expovariate(1.0) for _ in range(200))):
        mine.observe(value)
        library.observe(value)
        assert exposed(ours) == exposed(theirs)


def test_requests_are_exposed_like_a_counter_of_the_library():
    metrics, theirs = Metrics(), CollectorRegistry()
    library = Counter(
        "cbwk_requests_total",
        "Requests answered, by route and status.",
        ["method", "route", "status"],
        registry=theirs,
    )
    for method, route, status in (("POST", "/decide", 200), ("POST", "/decide", 503), ("POST", "/decide", 200)):
        metrics.count_request(method, route, status)
        library.labels(method, route, str(status)).inc()
    wanted = [line for line in exposed(metrics.registry) if "cbwk_requests" in line]
    assert wanted == exposed(theirs)
