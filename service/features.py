"""Encoders of declared features."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from cbwk_core import CategoryFeature, ContextEncoder, HashFeature, NumberFeature
from cbwk_core.features import FeatureError
from service.problems import without_values
from service.words import allowed, error_at, not_among


def encoder_of(space: Mapping[str, Any]) -> ContextEncoder:
    """Returns the encoder of a `context` or `arm_features` declaration; equal declarations share one encoder."""
    return _encoder_of(json.dumps(space, sort_keys=True))


@lru_cache(maxsize=64)
def _encoder_of(text: str) -> ContextEncoder:
    space = json.loads(text)
    if space.get("dimension") is not None:
        return ContextEncoder.vector(space["dimension"])
    return ContextEncoder(tuple(_feature_of(feature) for feature in space["features"]))


def _feature_of(feature: Mapping[str, Any]) -> NumberFeature | CategoryFeature | HashFeature:
    name, default, strict = feature["name"], feature.get("default"), bool(feature.get("strict", False))
    if feature["type"] == "number":
        return NumberFeature(name, feature["min"], feature["max"], default=default, strict=strict)
    if feature["type"] == "category":
        return CategoryFeature(name, tuple(feature["values"]), default=default, strict=strict)
    return HashFeature(name, feature["buckets"], default=default)


def misfit_at(path: Sequence[str | int], encoder: ContextEncoder, values: Any, error: ValueError) -> dict[str, str]:
    """Returns the entry of `errors` for values at a path in a body, which the encoder has refused with this error."""
    if not isinstance(error, FeatureError):
        return error_at(path, without_values(str(error)).removeprefix("context "))
    declared = {feature.name: feature for feature in encoder.features}
    feature = declared.get(str(error.feature))
    message = without_values(error.reason)
    if declared and feature is None:
        message = not_among("declared features", str(error.feature), declared)
    elif isinstance(feature, CategoryFeature) and isinstance(values.get(feature.name), str):
        message = allowed(values[feature.name], feature.values)
    return error_at((*path, error.feature), message)
