"""JSON lines, one per decision: as the interface shows it, and for Vowpal Wabbit's --dsjson."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from service.domain.campaign import Campaign
from service.domain.decision_rows import unpacked
from service.domain.holdout import SHADOW
from service.reads.formats.form import Exported, Form


class JsonLines(Form):
    """One JSON object per line."""

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line per decision."""
        return _lines(each.record for each in decisions)


def _lines(objects: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in objects)


class DecisionServiceLines(Form):
    """The arms, the probability of the chosen one and the reward as a cost, of decisions that were learnt from.

    The null arm, which is no action there, has no line.
    `_multi` has the arms that could be played, `a` their positions from 1 with the chosen one first, and `p` the
    probabilities in that order, or only that of the chosen arm if the campaign has too many arms to store all.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._own = [{"id": arm["id"], "features": arm.get("features")} for arm in campaign.config["arms"]]

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line per decision."""
        return _lines(self._line(each) for each in decisions if each.record["learned"])

    def _line(self, decision: Exported) -> dict[str, Any]:
        record, chosen = decision.record, decision.row["arm"]
        arms = self._own if record["actions"] is None else record["actions"]
        drawn = self._drawn(decision, len(arms))
        shown = [index for index in range(len(arms)) if index == chosen or drawn.get(index, 0.0) > 0.0]
        if record["reason"] == SHADOW:  # the caller decided: no other arm was possible
            drawn = dict.fromkeys(drawn, 0.0) | {chosen: 1.0}
        position = shown.index(chosen)
        others = [index for index in range(len(shown)) if index != position] if len(drawn) > 1 else []
        order = [position, *others]
        context = record["context"]
        return {
            "_label_cost": 0.0 - (record["reward"] or 0.0),
            "_label_probability": record["probability"],
            "_label_Action": position + 1,
            "_labelIndex": position,
            "Timestamp": record["decided_at"],
            "Version": "1",
            "EventId": record["decision_id"],
            "a": [index + 1 for index in order],
            "c": {
                "Context": context if isinstance(context, dict) else {"x": context},
                "_multi": [{"Arm": _described(arms[index])} for index in shown],
            },
            "p": [drawn[shown[index]] for index in order],
            "costs": record["costs"],
        }

    def _drawn(self, decision: Exported, arms: int) -> dict[int, float]:
        """The probabilities of the arms by index; that of the chosen arm is exact."""
        exact = {decision.row["arm"]: decision.record["probability"]}
        if decision.row["explanation"] is None:
            return exact
        table = unpacked(decision.row["explanation"], len(self._campaign.resources))
        stored = dict(enumerate(table[:, -1].tolist()))
        return {index: stored.get(index, 0.0) for index in range(arms)} | exact


def _described(arm: dict[str, Any]) -> dict[str, Any]:
    """The id and the features of an arm, as features of one namespace.

    >>> _described({"id": "a", "features": [0.5]})
    {'id': 'a', 'x': [0.5]}
    """
    features = arm.get("features")
    if features is None:
        return {"id": arm["id"]}
    return {"id": arm["id"]} | (features if isinstance(features, dict) else {"x": features})
