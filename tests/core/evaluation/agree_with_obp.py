"""Our estimators beside those of obp, on the Open Bandit sample inside its wheel; not part of the ordinary tests.

obp 0.4.1 asks for versions of its dependencies that are gone, so it gets an environment of its own:

    python -m venv obp-env
    obp-env/bin/pip install torch==2.13.0 pandas scikit-learn matplotlib seaborn tqdm pyyaml mypy_extensions joblib
    obp-env/bin/pip install --no-deps obp==0.4.1
    obp-env/bin/pip install --no-deps -e .
    obp-env/bin/python -m tests.core.evaluation.agree_with_obp

It compares all six logs of 10,000 rounds, with predictions of a logistic regression on the users' features for the
doubly robust estimate, and fails where a figure differs by more than 1e-8. Then it writes the first rounds of two logs
and obp's figures for them, which `test_estimators.py` reads: `open_bandit.json` names their origin.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import obp
import pandas as pd
from obp.ope import DoublyRobust, InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting
from obp.policy import BernoulliTS
from sklearn.linear_model import LogisticRegression

from cbwk_core.evaluation import FromFunction, Log, evaluate

HERE = Path(__file__).parent
SAMPLE = Path(obp.__file__).parent / "dataset" / "obd"
TOLERANCE = 1e-8
ROUNDS_KEPT = 2000
POSITIONS = 3
ORIGIN = (
    "Open Bandit Dataset (ZOZO, Inc.; Saito, Aihara, Matsutani & Narita 2021), campaign men, the first rounds by time "
    "of the sample in the wheel of obp 0.4.1. Figures by obp 0.4.1 with numpy {numpy}; written by agree_with_obp.py. "
    "`target` is Bernoulli Thompson sampling with ZOZOTOWN's prior, `predicted` a click rate by item and position."
)


class Sample(NamedTuple):
    """One log of the sample, ordered by time."""

    item: np.ndarray
    position: np.ndarray
    click: np.ndarray
    propensity: np.ndarray
    users: np.ndarray  # one column for each value of each user feature


def read(policy: str, campaign: str) -> Sample:
    """As obp reads it; its own reader calls pandas in a way that pandas no longer allows."""
    table = pd.read_csv(SAMPLE / policy / campaign / f"{campaign}.csv", index_col=0).sort_values("timestamp")
    users = pd.get_dummies(table.loc[:, table.columns.str.contains("user_feature")], drop_first=True)
    return Sample(
        table["item_id"].to_numpy(),
        table["position"].to_numpy() - table["position"].min(),
        table["click"].to_numpy(dtype=np.float64),
        table["propensity_score"].to_numpy(),
        users.to_numpy(dtype=np.float64),
    )


def logistic_rates(sample: Sample, items: int) -> np.ndarray:
    """Click rates (n, items, positions) by a logistic regression on item, position and user."""

    def features(item: np.ndarray, position: np.ndarray) -> np.ndarray:
        return np.concatenate([np.eye(items)[item], np.eye(POSITIONS)[position], sample.users], axis=1)

    model = LogisticRegression(max_iter=1000).fit(features(sample.item, sample.position), sample.click)
    rates = np.empty((sample.item.size, items, POSITIONS))
    for item in range(items):
        for position in range(POSITIONS):
            asked = features(np.full(sample.item.size, item), np.full(sample.item.size, position))
            rates[:, item, position] = model.predict_proba(asked)[:, 1]
    return rates


def item_rates(sample: Sample, items: int) -> np.ndarray:
    """Click rates (items, positions), each drawn towards the mean as if by a hundred rounds."""
    clicks, shown = np.zeros((items, POSITIONS)), np.zeros((items, POSITIONS))
    np.add.at(clicks, (sample.item, sample.position), sample.click)
    np.add.at(shown, (sample.item, sample.position), 1.0)
    return (clicks + 100.0 * sample.click.mean()) / (shown + 100.0)


def their_figures(sample: Sample, outcome: np.ndarray, target: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """obp's estimates of the mean outcome; target and predicted (n, items, positions)."""
    logged = {
        "reward": outcome,
        "action": sample.item,
        "pscore": sample.propensity,
        "action_dist": target,
        "position": sample.position,
    }
    doubly = DoublyRobust().estimate_policy_value(**logged, estimated_rewards_by_reg_model=predicted)
    return {
        "ips": float(InverseProbabilityWeighting().estimate_policy_value(**logged)),
        "snips": float(SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**logged)),
        "dr": float(doubly),
    }


def both_figures(sample: Sample, target: np.ndarray, predicted: np.ndarray) -> dict[str, dict[str, float]]:
    """obp's figures for the click and for a cost that differs by position, if ours agree."""
    row = np.arange(sample.item.size)
    cost = sample.click * (1.0 + sample.position) / POSITIONS
    cost_predicted = predicted * (1.0 + np.arange(POSITIONS)) / POSITIONS
    theirs = {
        "reward": their_figures(sample, sample.click, target, predicted),
        "cost": their_figures(sample, cost, target, cost_predicted),
    }
    probabilities = target[row, :, sample.position]
    log = Log.of(
        features=sample.users,
        eligible=np.ones(probabilities.shape, dtype=bool),
        arm=sample.item,
        propensity=sample.propensity,
        reward=sample.click,
        costs=cost[:, None],
    )
    ours = evaluate(
        log,
        FromFunction(lambda features, eligible: probabilities),
        rng=np.random.default_rng(1),
        model=np.stack([predicted[row, :, sample.position], cost_predicted[row, :, sample.position]], axis=2),
        replicates=100,
    )
    for column, figures in enumerate(theirs.values()):
        for name, figure in figures.items():
            apart = abs(getattr(ours, name).value[column] - figure)
            if not apart <= TOLERANCE:
                raise SystemExit(f"{name} differs by {apart} from obp's {figure}")
    return theirs


def thompson(campaign: str, items: int) -> np.ndarray:
    """Probabilities (items, positions) of the evaluation policy."""
    policy = BernoulliTS(
        n_actions=items, len_list=POSITIONS, is_zozotown_prior=True, campaign=campaign, random_state=12345
    )
    return policy.compute_batch_action_dist(n_sim=100_000, n_rounds=1)[0]


def main() -> None:
    """Compare everything, then write what the tests read."""
    for campaign in ("all", "men", "women"):
        for policy in ("random", "bts"):
            sample = read(policy, campaign)
            items, n = int(sample.item.max()) + 1, sample.item.size
            predicted = logistic_rates(sample, items)
            for name, table in (
                ("bts", thompson(campaign, items)),
                ("uniform", np.full((items, POSITIONS), 1 / items)),
            ):
                figures = both_figures(sample, np.broadcast_to(table, (n, items, POSITIONS)), predicted)
                print(f"{policy} log, {campaign}, {n} rounds, target {name}: {figures}")
    written: dict[str, Any] = {"origin": ORIGIN.format(numpy=np.__version__), "logs": {}}
    for policy in ("random", "bts"):
        full = read(policy, "men")
        sample = Sample(*(column[:ROUNDS_KEPT] for column in full))
        target, predicted = thompson("men", 34), item_rates(full, 34)
        shape = (ROUNDS_KEPT, 34, POSITIONS)
        figures = both_figures(sample, np.broadcast_to(target, shape), np.broadcast_to(predicted, shape))
        columns = np.column_stack([sample.item, sample.position, sample.click, sample.propensity])
        header = "item,position,click,propensity"
        np.savetxt(HERE / f"open_bandit_{policy}.csv", columns, "%d,%d,%d,%.17g", header=header, comments="")
        written["logs"][policy] = {"predicted": predicted.tolist(), "figures": figures}
        written["target"] = target.tolist()
    (HERE / "open_bandit.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
