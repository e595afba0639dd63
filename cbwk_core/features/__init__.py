"""From what a caller knows about a request to the numbers an oracle learns from."""

from cbwk_core.features.encoder import COORDINATE_MAX, TOGETHER_MIN, ContextEncoder, Encoded, EncodedMany
from cbwk_core.features.feature import CategoryFeature, Feature, HashFeature, NumberFeature
from cbwk_core.features.joint import concatenate, outer

__all__ = [
    "COORDINATE_MAX",
    "TOGETHER_MIN",
    "CategoryFeature",
    "ContextEncoder",
    "Encoded",
    "EncodedMany",
    "Feature",
    "HashFeature",
    "NumberFeature",
    "concatenate",
    "outer",
]
