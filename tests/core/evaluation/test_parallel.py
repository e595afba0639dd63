import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster

from cbwk_core import SquareCBwK
from cbwk_core.evaluation import PROGRESS_TOTAL, FromFunction, OutcomeModel, evaluate, what_if_budgets
from cbwk_core.evaluation.parallel import in_parallel
from cbwk_core.simulation.logged_world import MAX_COST, LoggedWorld

WORLD = LoggedWorld.of(3)
LOG = WORLD.log(400, np.random.default_rng(3))


def answer(jobs=None, progress=None):
    found = evaluate(
        LOG,
        FromFunction(WORLD.of_context(WORLD.targets()["leaning"])),
        rng=np.random.default_rng(1),
        model=OutcomeModel(oracle="gradient"),
        max_cost=MAX_COST,
        replicates=50,
        jobs=jobs,
        progress=progress,
    )
    return np.concatenate([found.ips.bootstrap, found.snips.bootstrap, found.dr.bootstrap])


@pytest.fixture(scope="module")
def dask():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_every_backend_gives_the_answer_of_one_worker(backend):
    alone = answer()
    with joblib.parallel_config(backend=backend, n_jobs=2):
        np.testing.assert_array_equal(answer(), alone)


def test_dask_gives_the_answer_of_one_worker(dask):
    alone = answer()
    with joblib.parallel_config(backend="dask"):
        np.testing.assert_array_equal(answer(), alone)


def test_flights_with_other_budgets_are_the_same_in_processes_of_their_own():
    policy = SquareCBwK(
        arms=4, dimension=2, resources=2, horizon=400, budget=0.2 * 400 * MAX_COST, max_cost=MAX_COST, model="per_arm"
    )
    alone, apart = (
        what_if_budgets(LOG, policy, budget=0.1 * 400 * MAX_COST, rng=np.random.default_rng(1), runs=2, jobs=jobs)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(alone.changed.reward, apart.changed.reward)
    np.testing.assert_array_equal(alone.control.prices, apart.control.prices)


def test_results_come_in_the_order_of_their_arguments_and_progress_counts_them():
    told = []
    squares = in_parallel(
        pow, [(number, 2) for number in range(11)], jobs=2, progress=lambda *count: told.append(count)
    )
    assert squares == [number**2 for number in range(11)]
    assert told[-1] == (11, 11)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_progress_of_an_evaluation_never_goes_back_and_reaches_its_end():
    told = []
    answer(progress=lambda done, total: told.append((done, total)))
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert told[-1] == (PROGRESS_TOTAL, PROGRESS_TOTAL)
