"""Encodes what a caller knows about a request as the numbers that an oracle learns from.

>>> encoder = ContextEncoder((NumberFeature("hour", 0, 24), HashFeature("site", 3)))
>>> context = encoder.encode_many([{"hour": 12, "site": "example.com"}]).vectors
>>> context
array([[0.5, 0. , 0. , 1. ]])
>>> concatenate(context, [[7.0], [8.0]]).shape
(1, 2, 5)
"""

from cbwk_core.features.encoder import BATCH_MIN, COORDINATE_MAX, ContextEncoder, Encoded, EncodedMany
from cbwk_core.features.feature import CategoryFeature, Feature, HashFeature, NumberFeature
from cbwk_core.features.joint import concatenate, outer

__all__ = [
    "BATCH_MIN",
    "COORDINATE_MAX",
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
