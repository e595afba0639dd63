"""Encodes what a caller knows about a request as the numbers that an oracle learns from."""

from cbwk_core.features.encoder import BATCH_MIN, COORDINATE_MAX, ContextEncoder, Encoded, EncodedMany
from cbwk_core.features.feature import CategoryFeature, Feature, FeatureError, HashFeature, NumberFeature
from cbwk_core.features.joint import concatenate, outer

__all__ = [
    "BATCH_MIN",
    "COORDINATE_MAX",
    "CategoryFeature",
    "ContextEncoder",
    "Encoded",
    "EncodedMany",
    "Feature",
    "FeatureError",
    "HashFeature",
    "NumberFeature",
    "concatenate",
    "outer",
]
