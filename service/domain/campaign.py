"""A campaign at run time: its configuration turned into encoders, holds and a policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import (
    RULES_KNOWN,
    CategoryFeature,
    ContextEncoder,
    HashFeature,
    NumberFeature,
    SquareCBwK,
    concatenate,
    outer,
)
from service.money import micros
from service.problems import Invalid, UnknownRules
from service.times import MICROS_PER_SECOND, moment_microseconds

# Stands for a horizon of which no traffic has told anything yet.
HORIZON_UNKNOWN = 1_000
# Beyond this many products of a context's and an arm's features a shared model takes their concatenation alone.
INTERACTIONS_MAX = 512


@dataclass(frozen=True)
class Campaign:
    """One version of a campaign's configuration, ready to decide."""

    number: int
    id: str
    version: int
    config: dict[str, Any]

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Resource ids, in order."""
        return tuple(resource["id"] for resource in self.config["resources"])

    @cached_property
    def arms(self) -> list[str]:
        """Arm ids, in order; an arm keeps its place for good."""
        return [arm["id"] for arm in self.config["arms"]]

    @cached_property
    def arm_index(self) -> dict[str, int]:
        """The place of each arm."""
        return {arm: index for index, arm in enumerate(self.arms)}

    @cached_property
    def budgets(self) -> list[int]:
        """Granted, in millionths."""
        return [micros(resource["budget"]) for resource in self.config["resources"]]

    @cached_property
    def max_costs(self) -> list[int]:
        """Largest hold of each resource, in millionths."""
        return [micros(resource["max_cost"]) for resource in self.config["resources"]]

    def hold_of(self, own: Mapping[str, float] | None) -> list[int]:
        """The hold of an arm that declares these max costs of its own, in millionths."""
        given = own or {}
        return [
            micros(given[resource]) if resource in given else default
            for resource, default in zip(self.resources, self.max_costs, strict=True)
        ]

    @cached_property
    def holds(self) -> list[list[int]]:
        """The hold of every arm, in millionths."""
        return [self.hold_of(arm.get("max_cost")) for arm in self.config["arms"]]

    @cached_property
    def named_arms(self) -> tuple[Sequence[str | None], Sequence[str | None]]:
        """The arms' ids, and their holds as the log keeps them; last, where -1 finds it, the null arm's: none."""
        return [*self.arms, None], [*(orjson.dumps(hold).decode() for hold in self.holds), None]

    @cached_property
    def units(self) -> list[int]:
        """What the policy counts costs in, in millionths: of each resource the largest hold of an arm."""
        own = [arm.get("max_cost") or {} for arm in self.config["arms"]]
        largest = []
        for resource, most in zip(self.resources, self.max_costs, strict=True):
            declared = [limits[resource] for limits in own if resource in limits]
            every_arm = own and len(declared) == len(own)
            largest.append(micros(max(declared)) if every_arm else most)
        return largest

    @cached_property
    def retired(self) -> frozenset[int]:
        """Arms that are never chosen again."""
        return frozenset(index for index, arm in enumerate(self.config["arms"]) if arm.get("retired"))

    @cached_property
    def encoder(self) -> ContextEncoder:
        """From a context to a vector."""
        return encoder_of(self.config["context"])

    @cached_property
    def arm_encoder(self) -> ContextEncoder | None:
        """From an arm's features to a vector, where the model is shared."""
        return encoder_of(self.config["arm_features"]) if self.config["model"] == "shared" else None

    @cached_property
    def arm_vectors(self) -> NDArray[np.float64] | None:
        """The features of the campaign's own arms, (arms, features)."""
        if self.arm_encoder is None or not self.arms:
            return None
        return np.stack([self.arm_encoder.encode(arm["features"]).vector for arm in self.config["arms"]])

    @cached_property
    def dimension(self) -> int:
        """Length of a feature vector as the policy sees it."""
        context = self.encoder.dimension
        if self.arm_encoder is None:
            return context
        arm = self.arm_encoder.dimension
        return context + arm + (context * arm if self.interacts else 0)

    @cached_property
    def interacts(self) -> bool:
        """Whether a shared model has the products of context and arm features."""
        return self.arm_encoder is not None and self.encoder.dimension * self.arm_encoder.dimension <= INTERACTIONS_MAX

    @cached_property
    def horizon(self) -> int:
        """Decisions the campaign is expected to make: declared, or estimated where only an end is."""
        declared = self.config["horizon"]
        estimate = self.config.get("estimate") or {"horizon": HORIZON_UNKNOWN}
        return int(estimate["horizon"] if declared is None else declared)

    @cached_property
    def ends_at(self) -> int | None:
        """The declared end, in microseconds since 1970."""
        declared = self.config["ends_at"]
        return None if declared is None else moment_microseconds(declared)

    @cached_property
    def ttl_micros(self) -> int:
        """How long a hold stands."""
        return int(self.config["feedback"]["ttl_seconds"]) * MICROS_PER_SECOND

    @cached_property
    def two_stage(self) -> bool | str:
        """Two stages where the campaign was made with them: `auto` was decided then, and is one stage since."""
        declared: bool | str = self.config["policy"]["two_stage"]
        return "off" if declared == "auto" else declared

    @cached_property
    def rules(self) -> int:
        """The version of the rules that the campaign was made with; version 0.1 stored none and had 1."""
        version: int = self.config.get("rules", 1)
        return version

    @cached_property
    def public_config(self) -> dict[str, Any]:
        """The configuration as answers show it: without `rules`, so that a new campaign can be made of it."""
        return {name: value for name, value in self.config.items() if name != "rules"}

    @cached_property
    def policy(self) -> SquareCBwK:
        """The policy, in millionths throughout; raises UnknownRules."""
        if self.rules not in RULES_KNOWN:
            raise UnknownRules(self.rules)
        policy = self.config["policy"]
        oracle = policy["oracle"]
        return SquareCBwK(
            arms=len(self.arms),
            dimension=self.dimension,
            resources=len(self.resources),
            horizon=self.horizon,
            budget=self.budgets,
            max_cost=self.holds or self.max_costs,
            model=self.config["model"],
            preset=policy["preset"],
            oracle=oracle["kind"],
            link=oracle["link"],
            forgetting=oracle["forgetting"],
            gamma=policy["gamma"],
            z=policy["z"],
            two_stage=self.two_stage,
            retired=tuple(self.retired),
            stage_one="logged",
            rules=self.rules,
        )

    @cached_property
    def shadows(self) -> bool:
        """Whether the caller decides, and the policy only looks on and learns."""
        return bool(self.config.get("mode") == "shadow")

    @cached_property
    def diverts(self) -> bool:
        """Whether some decisions are made by somebody else: see engine.diverting."""
        return self.shadows or self.config.get("holdout") is not None

    def features(self, context: NDArray[np.float64], arms: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """What the policy takes for n encoded contexts (n, p) and arms (k, r) or (n, k, r): see the core's `decide`."""
        if self.arm_encoder is None:
            return context
        assert arms is not None, "a shared model needs the arms' features"
        both = concatenate(context, arms)
        return np.concatenate([both, outer(context, arms)], axis=2) if self.interacts else both

    def encode(self, context: Mapping[str, Any] | Sequence[float]) -> NDArray[np.float64]:
        """A context as a vector; what is wrong with it is the client's to know."""
        try:
            return self.encoder.encode(context).vector
        except ValueError as error:
            raise Invalid(str(error), kind="invalid-context", errors=[_named("context", error)]) from error

    def encode_all(self, contexts: Sequence[Mapping[str, Any] | Sequence[float]]) -> NDArray[np.float64] | None:
        """Several contexts as vectors, for half the price each; None where something is wrong with one of them."""
        try:
            return self.encoder.encode_many(contexts).vectors
        except ValueError:
            return None

    def reward(self, value: float) -> tuple[float, bool]:
        """A reward scaled to [0, 1] by the declared range, and whether it had to be clipped."""
        low, high = self.config["reward"]["min"], self.config["reward"]["max"]
        scaled = (value - low) / (high - low)
        clipped = min(max(scaled, 0.0), 1.0)
        return clipped, clipped != scaled

    def uniforms(self, start: int, rounds: int) -> NDArray[np.float64]:
        """The uniforms of so many rounds, which anyone can compute again from the campaign's seed."""
        seed = self.config["seed"]
        if rounds == 1:
            return np.array([uniform_of(seed, start)])
        digests = b"".join([_digest(seed, start + each) for each in range(rounds)])
        return np.asarray((np.frombuffer(digests, dtype=">u8") >> np.uint64(11)) * 2.0**-53)


def uniform_of(seed: int, round_number: int) -> float:
    """(blake2b("seed:round", 8 bytes, big-endian) >> 11)·2⁻⁵³.

    >>> 0.0 <= uniform_of(7, 0) < 1.0
    True
    """
    return (int.from_bytes(_digest(seed, round_number), "big") >> 11) * 2.0**-53


def _digest(seed: int, round_number: int) -> bytes:
    return blake2b(b"%d:%d" % (seed, round_number), digest_size=8).digest()


def encoder_of(declared: Mapping[str, Any]) -> ContextEncoder:
    """The encoder of a `context` or `arm_features` declaration; the same one for campaigns that declare the same."""
    return _encoder_of(json.dumps(declared, sort_keys=True))


@lru_cache(maxsize=64)
def _encoder_of(text: str) -> ContextEncoder:
    declared = json.loads(text)
    if declared.get("dimension") is not None:
        return ContextEncoder.vector(declared["dimension"])
    return ContextEncoder(tuple(_feature_of(feature) for feature in declared["features"]))


def _feature_of(declared: Mapping[str, Any]) -> NumberFeature | CategoryFeature | HashFeature:
    name, default, strict = declared["name"], declared.get("default"), bool(declared.get("strict", False))
    if declared["type"] == "number":
        return NumberFeature(name, declared["min"], declared["max"], default=default, strict=strict)
    if declared["type"] == "category":
        return CategoryFeature(name, tuple(declared["values"]), default=default, strict=strict)
    return HashFeature(name, declared["buckets"], default=default)


def _named(field: str, error: ValueError) -> dict[str, str]:
    return {"field": field, "message": str(error)}
