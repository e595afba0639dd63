"""Regression oracles: one small file each, one contract (`cbwk_core.oracles.oracle`)."""

from cbwk_core.oracles.adapters import ModelState, RiverOracle, SklearnOracle
from cbwk_core.oracles.aggregate import Aggregate, AggregateState
from cbwk_core.oracles.gradient import Gradient, GradientState
from cbwk_core.oracles.kernel import Kernel
from cbwk_core.oracles.newton import Newton
from cbwk_core.oracles.newton_state import NewtonState
from cbwk_core.oracles.online_to_batch import Iterate, OnlineToBatch, OnlineToBatchState
from cbwk_core.oracles.product import Product, ProductState

__all__ = [
    "Aggregate",
    "AggregateState",
    "Gradient",
    "GradientState",
    "Iterate",
    "Kernel",
    "ModelState",
    "Newton",
    "NewtonState",
    "OnlineToBatch",
    "OnlineToBatchState",
    "Product",
    "ProductState",
    "RiverOracle",
    "SklearnOracle",
]
