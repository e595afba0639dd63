"""A campaign at run time: its configuration as encoders, holds and a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from operator import ge
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from cbwk_core import RULES_KNOWN, ContextEncoder, SquareCBwK, concatenate, outer
from cbwk_core.ticket import ENDED
from service.domain.budget_holder import BudgetHolder
from service.features import encoder_of, misfit_at
from service.limits import ACTIONS_MAX
from service.money import micros
from service.problems import Invalid, UnknownRules
from service.times import MICROS_PER_SECOND, moment_microseconds

# The horizon of a campaign without a declared one, until there is traffic to estimate it from.
HORIZON_UNKNOWN = 1_000
# With more products of context and arm features than this, a shared model uses their concatenation only.
INTERACTIONS_MAX = 512
# What an arm costs besides its features, in multiplications.
ARM_WORK_MIN = 256
NOT_STARTED = "not_started"
# The first version of the rules in which a retired arm does not exclude an action at its place.
OWN_ACTIONS_RULES = 4
RETIRED, PAUSED = "retired", "paused"
# What the service adds to a configuration.
_OWN = ("rules", "units", "arm_units", "holdout_since", "retired_since")


@dataclass(frozen=True)
class Campaign(BudgetHolder):
    """One version of a campaign's configuration, ready to decide."""

    @cached_property
    def arms(self) -> list[str]:
        """Arm ids, in order; the place of an arm never changes."""
        return [arm["id"] for arm in self.config["arms"]]

    @cached_property
    def arm_index(self) -> dict[str, int]:
        """The place of each arm."""
        return {arm: index for index, arm in enumerate(self.arms)}

    @cached_property
    def max_costs(self) -> list[int]:
        """The largest hold of each resource, in millionths."""
        return [micros(resource["max_cost"]) for resource in self.config["resources"]]

    def hold_of(self, own: Mapping[str, float] | None, defaults: Sequence[int] | None = None) -> list[int]:
        """Returns the hold of an arm with these max costs of its own, in millionths."""
        known = zip(self.resources, defaults or self.max_costs, strict=True)
        return [micros(own[resource]) if own and resource in own else default for resource, default in known]

    @cached_property
    def holds(self) -> list[list[int]]:
        """The hold of every arm, in millionths.

        An arm that is not chosen may have a larger max cost than its resource by now; it does not count.
        """
        holds = [self.hold_of(arm.get("max_cost")) for arm in self.config["arms"]]
        for arm in self.inactive:
            holds[arm] = [*map(min, holds[arm], self.max_costs)]
        return holds

    @cached_property
    def holds_that_may_return(self) -> list[list[int]]:
        """The holds of the arms that are not retired, in millionths."""
        return [hold for arm, hold in enumerate(self.holds) if self.inactive.get(arm) != RETIRED]

    @cached_property
    def playable_holds(self) -> list[list[int]]:
        """The holds of the arms that may be chosen, in millionths."""
        return [hold for arm, hold in enumerate(self.holds) if arm not in self.inactive]

    def pays_for_nothing(self, free: Sequence[int]) -> bool:
        """Whether these free amounts pay for no arm at its declared max cost."""
        if all(map(ge, free, self.max_costs)):
            return False  # the usual case, without a look at the arms, of which there may be many
        holds = self.playable_holds
        return bool(holds) and not any(all(map(ge, free, hold)) for hold in holds)

    @cached_property
    def named_arms(self) -> tuple[Sequence[str | None], Sequence[str | None]]:
        """The arms' ids and their holds in JSON; the last entries (index -1) are the null arm's, None."""
        return [*self.arms, None], [*(orjson.dumps(hold).decode() for hold in self.holds), None]

    @cached_property
    def units(self) -> list[int]:
        """The policy's units of cost, in millionths: the largest hold of an arm when the campaign was created."""
        stored: list[int] | None = self.config.get("units")
        return stored or self.dearest

    @cached_property
    def dearest(self) -> list[int]:
        """The largest hold of an arm for each resource, in millionths."""
        return [max(amounts) for amounts in zip(*self.holds, strict=True)] or self.max_costs

    @cached_property
    def arm_units(self) -> list[list[int]]:
        """What the noise of each arm is counted in, in millionths: its hold when it was added."""
        stored: list[list[int]] | None = self.config.get("arm_units")
        return stored or self.holds

    @cached_property
    def inactive(self) -> dict[int, str]:
        """Why arms are not chosen, by their indices: "retired" or "paused"."""
        status = [RETIRED if arm.get("retired") else arm.get("status") for arm in self.config["arms"]]
        return {index: why for index, why in enumerate(status) if why in (RETIRED, PAUSED)}

    @cached_property
    def floor(self) -> int | None:
        """The index of the arm that is in reserve, if null is the last resort."""
        arm = self.config.get("floor_arm")  # version 0.1 stored none
        return None if arm is None else self.arm_index[arm]

    @cached_property
    def encoder(self) -> ContextEncoder:
        """Encodes a context as a vector."""
        return encoder_of(self.config["context"])

    @cached_property
    def arm_encoder(self) -> ContextEncoder | None:
        """Encodes an arm's features as a vector, if the model is shared."""
        return encoder_of(self.config["arm_features"]) if self.config["model"] == "shared" else None

    @cached_property
    def arm_vectors(self) -> NDArray[np.float64] | None:
        """The features of the campaign's own arms, (arms, features)."""
        if self.arm_encoder is None or not self.arms:
            return None
        return np.stack([self.arm_encoder.encode(arm["features"]).vector for arm in self.config["arms"]])

    @cached_property
    def dimension(self) -> int:
        """The length of a feature vector of the policy."""
        context = self.encoder.dimension
        if self.arm_encoder is None:
            return context
        arm = self.arm_encoder.dimension
        return context + arm + (context * arm if self.interacts else 0)

    @cached_property
    def interacts(self) -> bool:
        """Whether the features of a shared model include the products of context and arm features."""
        return self.arm_encoder is not None and self.encoder.dimension * self.arm_encoder.dimension <= INTERACTIONS_MAX

    @cached_property
    def arm_work(self) -> int:
        """About how many multiplications it takes to weigh one arm for one request.

        An oracle that knows how certain it is multiplies the features with a square matrix.
        """
        linear = self.config["policy"]["oracle"]["kind"] == "gradient"
        return max(self.dimension if linear else self.dimension**2, ARM_WORK_MIN)

    @cached_property
    def decision_work_max(self) -> int:
        """The most multiplications of one decision, whatever actions a request brings."""
        return self.arm_work * (len(self.arms) if self.arm_encoder is None else max(len(self.arms), ACTIONS_MAX))

    @cached_property
    def horizon(self) -> int:
        """The expected number of decisions: declared, or estimated if only an end is declared."""
        declared = self.config["horizon"]
        estimate = self.config.get("estimate") or {"horizon": HORIZON_UNKNOWN}
        return int(estimate["horizon"] if declared is None else declared)

    @cached_property
    def ends_at(self) -> int | None:
        """The declared end, in microseconds since 1970."""
        declared = self.config["ends_at"]
        return None if declared is None else moment_microseconds(declared)

    @cached_property
    def starts_at(self) -> int | None:
        """The declared start, in microseconds since 1970."""
        declared = self.config.get("starts_at")  # version 0.1 stored none
        return None if declared is None else moment_microseconds(declared)

    def flight_start(self, created_at: int) -> int:
        """When the flight begins: at the declared start, and not before the campaign was created."""
        return max(created_at, self.starts_at or 0)

    @cached_property
    def counts_traffic(self) -> bool:
        """Whether the expected traffic matters: for the horizon of a campaign with an end, or for its windows."""
        return self.ends_at is not None or any(resource.get("windows") for resource in self.config["resources"])

    @cached_property
    def ttl_micros(self) -> int:
        """The time from a decision to its expiry."""
        return int(self.config["feedback"]["ttl_seconds"]) * MICROS_PER_SECOND

    @cached_property
    def two_stage(self) -> bool | str:
        """The stored mode; `auto` was resolved when the campaign was made, so it means one stage here."""
        declared: bool | str = self.config["policy"]["two_stage"]
        return "off" if declared == "auto" else declared

    @cached_property
    def rules(self) -> int:
        """The version of the rules since the campaign's creation; version 0.1 stored none and had 1."""
        version: int = self.config.get("rules", 1)
        return version

    @cached_property
    def public_config(self) -> dict[str, Any]:
        """The configuration in responses: without what the service adds, so that a new campaign can be made from it."""
        return {name: value for name, value in self.config.items() if name not in _OWN}

    @cached_property
    def policy(self) -> SquareCBwK:
        """The policy, with all amounts in millionths. Raises UnknownRules."""
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
            unit=self.config.get("units"),
            arm_unit=self.config.get("arm_units"),
            model=self.config["model"],
            preset=policy["preset"],
            oracle=oracle["kind"],
            link=oracle["link"],
            forgetting=oracle["forgetting"],
            gamma=policy["gamma"],
            z=policy["z"],
            two_stage=self.two_stage,
            retired=tuple(self.inactive),
            stage_one="logged",
            paced=bool(self.windows),
            must_play=self.floor is not None,
            floor_arm=self.floor,
            rules=self.rules,
        )

    @cached_property
    def action_policy(self) -> SquareCBwK:
        """The policy for requests that bring their own arms, of which none is retired."""
        return replace(self.policy, retired=()) if self.inactive and self.rules >= OWN_ACTIONS_RULES else self.policy

    @cached_property
    def shadows(self) -> bool:
        """Whether the caller decides and the policy only observes and learns."""
        return bool(self.config.get("mode") == "shadow")

    @cached_property
    def has_baseline(self) -> bool:
        """Whether a baseline makes some decisions: see `domain.holdout`."""
        return self.shadows or self.config.get("holdout") is not None

    @cached_property
    def names(self) -> dict[str, Any]:
        """What people call the campaign and note about it, as views show it."""
        return names_of(self.config)

    def outside_flight(self, now: int) -> str | None:
        """Returns the reason why nothing is decided at this time: before the start or after the end; None between."""
        if self.starts_at is not None and now < self.starts_at:
            return NOT_STARTED
        return ENDED if self.ends_at is not None and now >= self.ends_at else None

    def status_at(self, now: int, stored: str, rounds: int) -> str:
        """Returns the status as it is shown: an active campaign is scheduled before its start and ended after its end.

        One without rounds left has ended, too.
        """
        if stored != "active":
            return stored
        reason, declared = self.outside_flight(now), self.config["horizon"]
        if reason == NOT_STARTED:
            return "scheduled"
        return ENDED if reason or (declared is not None and rounds >= declared) else stored

    def features(self, context: NDArray[np.float64], arms: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Returns the policy's features of n encoded contexts (n, p) and arms (k, r) or (n, k, r)."""
        if self.arm_encoder is None:
            return context
        assert arms is not None, "a shared model needs the arms' features"
        both = concatenate(context, arms)
        return np.concatenate([both, outer(context, arms)], axis=2) if self.interacts else both

    def encode(self, context: Mapping[str, Any] | Sequence[float]) -> NDArray[np.float64]:
        """Returns a context as a vector. Raises Invalid."""
        try:
            return self.encoder.encode(context).vector
        except ValueError as error:
            fault = misfit_at(("context",), self.encoder, context, error)
            detail = f"{fault['field']} {fault['message']}"
            raise Invalid(detail, kind="invalid-context", errors=[fault]) from error

    def encode_all(self, contexts: Sequence[Mapping[str, Any] | Sequence[float]]) -> NDArray[np.float64] | None:
        """Returns several contexts as vectors, at half the cost of `encode` each; None if one of them is invalid."""
        try:
            return self.encoder.encode_many(contexts).vectors
        except ValueError:
            return None

    def reward(self, value: float) -> tuple[float, bool]:
        """Returns a reward scaled to [0, 1] by the declared range, and whether it was clipped."""
        low, high = self.config["reward"]["min"], self.config["reward"]["max"]
        scaled = (value - low) / (high - low)
        clipped = min(max(scaled, 0.0), 1.0)
        return clipped, clipped != scaled

    def uniforms(self, start: int, rounds: int) -> NDArray[np.float64]:
        """Returns the uniforms of `rounds` rounds, a function of the campaign's seed."""
        seed = self.config["seed"]
        return uniforms_of([b"%d:%d" % (seed, start + each) for each in range(rounds)])


def names_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the display name and the metadata of a campaign or an arm.

    >>> names_of({"id": "a"})
    {'display_name': None, 'metadata': {}}
    """
    return {"display_name": config.get("display_name"), "metadata": config.get("metadata") or {}}


def uniforms_of(texts: Sequence[bytes]) -> NDArray[np.float64]:
    """Returns (blake2b(text, 8 bytes, big-endian) >> 11)·2⁻⁵³ of each text.

    >>> bool(0.0 <= uniforms_of([b"7:0"])[0] < 1.0)
    True
    """
    digests = [int.from_bytes(blake2b(text, digest_size=8).digest(), "big") for text in texts]
    return np.array([(digest >> 11) * 2.0**-53 for digest in digests])
