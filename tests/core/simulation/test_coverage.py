"""The study of intervals at a small size; `python -m cbwk_core.simulation.coverage` is the full one."""

import numpy as np
import pytest
from rich.console import Console

from cbwk_core.simulation.coverage import COVERED_MIN, Found, Task, coverage, kinds, lines, main, measure, study
from cbwk_core.simulation.logged_world import CONTEXTS, LoggedWorld, campaign_logs, greedy, learner_logs, softmax

WORLD = LoggedWorld.of(7, least=0.12)


@pytest.mark.parametrize("learner", [softmax, greedy])
def test_learners_log_probabilities_that_sum_to_one_and_draw_by_them(learner):
    logs = learner_logs(WORLD, learner, runs=50, rounds=100, seed=1)
    for log in logs:
        np.testing.assert_allclose(log.probabilities.sum(axis=1), 1.0)
        assert (log.probabilities[log.eligible] > 0.0).all()
    # The expected share of arm 0 beside the drawn one, five standard errors.
    expected = np.mean([log.probabilities[:, 0] for log in logs])
    drawn = np.mean([log.arm == 0 for log in logs])
    assert abs(expected - drawn) < 5.0 * np.sqrt(0.25 / 5000)


def test_the_truth_is_the_mean_of_many_rounds():
    target = WORLD.targets()["leaning"]
    rng = np.random.default_rng(1)
    context = rng.integers(CONTEXTS, size=200_000)
    given = np.concatenate([target, 1.0 - target.sum(axis=1, keepdims=True)], axis=1)[context]
    arm = (rng.random((200_000, 1)) > given.cumsum(axis=1)).sum(axis=1)
    outcomes = WORLD.outcomes(context, np.where(arm == 4, -1, arm), rng)
    np.testing.assert_allclose(outcomes.mean(axis=0), WORLD.truth(target), atol=0.01)


def test_a_campaign_without_money_has_no_eligible_arm():
    (log,) = campaign_logs(WORLD, runs=1, rounds=300, share=0.05, seed=1)
    assert not log.eligible[-1].any()
    assert (log.costs.sum(axis=0) <= 0.05 * 300 * WORLD.max_cost).all()


def test_intervals_hold_the_truth_on_logs_of_a_policy_that_learns():
    """40 logs, three standard errors below the bar; confidence sequences hold nearly always."""
    found = [each for each in measure(Task("softmax", 1000, 40, 3)) if each.quiet]
    assert {each.row for each in found} >= {"uniform", "leaning"}
    for row in ("uniform", "leaning"):
        hits = np.mean([each.hits for each in found if each.row == row], axis=0)
        assert hits.min() >= COVERED_MIN - 3.0 * np.sqrt(0.08 * 0.92 / 40)


def test_the_end_of_three_budgets_is_not_early():
    found = [each.run_out for each in measure(Task("fixed, three budgets", 1000, 40, 1)) if each.row == "at once"]
    share, reward, value = np.mean(found, axis=0)
    assert min(share, reward) >= COVERED_MIN - 3.0 * np.sqrt(0.08 * 0.92 / 40)
    assert value == pytest.approx(0.9, abs=0.02)


def row_of(hits, quiet=True, effective=300.0):
    return [Found("uniform", effective, quiet, np.full((3, 3, 2), hit), np.ones((3, 3)), None) for hit in hits]


def test_a_row_misses_its_bar_with_too_few_hits_or_too_many_cautions():
    assert coverage("fixed", "uniform", row_of([True] * 95 + [False] * 5)).meets
    assert not coverage("fixed", "uniform", row_of([True] * 90 + [False] * 10)).meets
    cautious = row_of([True] * 80) + row_of([True] * 20, quiet=False)
    assert not coverage("fixed", "uniform", cautious).meets
    few = row_of([True] * 80) + row_of([False] * 20, quiet=False, effective=100.0)
    assert coverage("fixed", "uniform", few).meets


def test_the_study_has_a_row_for_each_target_and_a_line_for_each_estimator():
    rows = study(["fixed", "fixed, three budgets"], logs=2, rounds=200, console=Console(quiet=True))
    assert [row.row for row in rows] == ["fixed arm", "uniform", "leaning", "trained", "at once", "one by one"]
    assert [len(lines(row).splitlines()) for row in rows] == [3, 3, 3, 3, 1, 1]
    assert set(kinds()) >= {"softmax", "ε-greedy", "campaign, budget 0.2·T"}


def test_the_command_prints_a_table_and_says_what_misses(capsys):
    code = main(["--logs", "2", "--rounds", "200", "--kinds", "ε-greedy, equal arms"])
    head, _, *body, last = capsys.readouterr().out.splitlines()
    assert head.startswith("| log | target | ESS |")
    assert len(body) == 9
    assert last.startswith("Rows that miss a bar: ")
    assert (code == 0) == last.endswith("none")


def test_the_command_refuses_no_logs(capsys):
    with pytest.raises(SystemExit):
        main(["--logs", "0"])
    assert "must be at least 1" in capsys.readouterr().err
