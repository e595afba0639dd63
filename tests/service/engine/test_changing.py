"""A world that changes: the model begins anew, and whoever runs the service is told."""

from __future__ import annotations

import numpy as np
from structlog.testing import capture_logs

from service.engine.batch import BatchRunner
from service.engine.commands import CreateCampaign, Decide, Feedback, Item
from service.metrics import Metrics
from tests.service.engine.campaigns import config

ROUNDS = 400


def noticed(metrics):
    return metrics.registry.get_sample_value("cbwk_changes_noticed", {"campaign": "c"})


def dismissed(metrics):
    return metrics.registry.get_sample_value("cbwk_alarms_dismissed", {"campaign": "c"})


def play(processor, rng, start, rewards, rounds=ROUNDS):
    """Decisions in batches of 20, each with the reward of its arm."""
    for first in range(start, start + rounds, 20):
        asked = [Decide("c", f"d{each}", rng.random(2).tolist()) for each in range(first, first + 20)]
        items = [Item(command, 0.0) for command in asked]
        processor.run(items)
        given = [item.answer.body for item in items]
        outcomes = [
            Feedback("c", body["decision_id"], reward=rewards[body["arm"]] + 0.1 * rng.random(), costs={"usd": 0.5})
            for body in given
            if body["arm"] is not None
        ]
        processor.run([Item(outcome, 0.0) for outcome in outcomes])


def test_a_change_of_roles_is_noticed_logged_and_counted_once(database):
    metrics, rng = Metrics(), np.random.default_rng(1)
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000, metrics=metrics)
    processor.run([Item(CreateCampaign(config(budget=10_000, horizon=10_000)), 0.0)])
    play(processor, rng, 0, {"a": 0.8, "b": 0.1})
    assert noticed(metrics) == 0.0
    with capture_logs() as logs:
        play(processor, rng, ROUNDS, {"a": 0.1, "b": 0.8})
    assert noticed(metrics) == 1.0
    (line,) = [each for each in logs if "changed" in each["event"]]
    assert (line["campaign"], line["changes"], line["log_level"]) == ("c", 1, "info")
    assert dismissed(metrics) == 0.0


def test_an_alarm_that_outcomes_do_not_confirm_is_counted_and_does_not_restart_the_model(database):
    metrics, rng = Metrics(), np.random.default_rng(1)
    processor = BatchRunner(database, memory_bytes_max=2**28, lock_timeout_ms=2_000, metrics=metrics)
    processor.run([Item(CreateCampaign(config(budget=10_000, horizon=10_000)), 0.0)])
    play(processor, rng, 0, {"a": 0.8, "b": 0.1})
    play(processor, rng, ROUNDS, {"a": 0.5, "b": 0.1}, rounds=20)  # a short excursion raises the alarm
    play(processor, rng, ROUNDS + 20, {"a": 0.8, "b": 0.1}, rounds=2 * ROUNDS)
    assert (noticed(metrics), dismissed(metrics)) == (0.0, 1.0)
