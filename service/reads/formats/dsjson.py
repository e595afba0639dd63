"""Lines that Vowpal Wabbit reads with --dsjson: what was shown, at which probability, and the reward as a cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from service.domain.campaign import Campaign
from service.domain.explanation import unpacked
from service.engine.holdout import SHADOW
from service.reads.formats.records import Exported


class DecisionServiceLines:
    """One line for each decision that was learnt from; the null arm has no line, since there it is no action.

    `_multi` has the arms that could be played, `a` their places counted from 1 with the chosen one first, and `p` the
    probabilities in that order; where a campaign has so many arms that only the chosen one's was kept, that alone.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._own = [{"id": arm["id"], "features": arm.get("features")} for arm in campaign.config["arms"]]

    def page(self, decisions: Sequence[Exported]) -> bytes:
        """One line each."""
        lines = [self._line(one) for one in decisions if one.is_learnt]
        return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)

    def end(self) -> Iterable[bytes]:
        """Nothing."""
        return ()

    def _line(self, one: Exported) -> dict[str, Any]:
        record, chosen = one.record, one.row["arm"]
        arms = self._own if record["actions"] is None else record["actions"]
        drawn = self._drawn(one, len(arms))
        shown = [index for index in range(len(arms)) if index == chosen or drawn.get(index, 0.0) > 0.0]
        if record["reason"] == SHADOW:  # the caller decided, and nothing else could have come of it
            drawn = dict.fromkeys(drawn, 0.0) | {chosen: 1.0}
        place = shown.index(chosen)
        order = [place, *(index for index in range(len(shown)) if index != place)] if len(drawn) > 1 else [place]
        context = record["context"]
        return {
            "_label_cost": 0.0 - (record["reward"] or 0.0),
            "_label_probability": record["probability"],
            "_label_Action": place + 1,
            "_labelIndex": place,
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

    def _drawn(self, one: Exported, arms: int) -> dict[int, float]:
        """With which probability arms would have been drawn; of the chosen one it is exact."""
        exact = {one.row["arm"]: one.record["probability"]}
        if one.row["explanation"] is None:
            return exact
        table = unpacked(one.row["explanation"], len(self._campaign.resources))
        kept = dict(enumerate(table[:, -1].tolist()))
        return {index: kept.get(index, 0.0) for index in range(arms)} | exact


def _described(arm: dict[str, Any]) -> dict[str, Any]:
    """An arm's name and what it is described by, as features of one namespace.

    >>> _described({"id": "a", "features": [0.5]})
    {'id': 'a', 'x': [0.5]}
    """
    features = arm.get("features")
    if features is None:
        return {"id": arm["id"]}
    return {"id": arm["id"]} | (features if isinstance(features, dict) else {"x": features})
