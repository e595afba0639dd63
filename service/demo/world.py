"""The simulated world of the demo: visitors of 36 kinds, four banners, clicks and prices with known means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cbwk_core.arrays import Array, Integers
from cbwk_core.static_optimum import static_optimum

CAMPAIGN = "summer-sale"
USD, IMPRESSIONS = "usd", "impressions"
BANNERS = ("beach", "mountain", "city", "festival")
FEATURES = {
    "device": ("mobile", "desktop", "tv"),
    "daypart": ("morning", "day", "evening", "night"),
    "site": ("news", "shop", "games"),
}
SHARES = {"device": (0.6, 0.3, 0.1), "daypart": (0.2, 0.35, 0.35, 0.1), "site": (0.5, 0.2, 0.3)}
# Maximum cost of an impression.
USD_MAX = 0.05
# Both budgets are scarce: they pay for two visitors of three, and not always for the best banner.
USD_PER_REQUEST, IMPRESSIONS_PER_REQUEST = 0.0065, 0.67
CLICK_RATES = (0.01, 0.6)
USD_MEANS = (0.004, 0.036)
USD_NOISE = 0.35
# Feedback comes up to this many requests later; some is void, some never comes.
DELAY_REQUESTS_MAX = 200
VOID_SHARE, MISSING_SHARE = 0.03, 0.03


class Outcome(NamedTuple):
    """The outcome of an impression."""

    reward: float
    costs: dict[str, float]


@dataclass(frozen=True)
class World:
    """Requests numbered from 0 and the outcome of each banner; determined by the seed."""

    requests: int
    seed: int = 7
    ttl_seconds: int = 12  # after which feedback counts as missing

    @cached_property
    def kinds(self) -> list[dict[str, str]]:
        """Returns every kind of visitor."""
        grid = np.indices([len(values) for values in FEATURES.values()]).reshape(len(FEATURES), -1).T
        return [
            {name: values[place] for (name, values), place in zip(FEATURES.items(), row, strict=True)} for row in grid
        ]

    @cached_property
    def weights(self) -> Array:
        """Returns the frequency of each kind, (kinds,)."""
        shares = [
            np.prod([SHARES[name][FEATURES[name].index(value)] for name, value in kind.items()]) for kind in self.kinds
        ]
        return np.array(shares)

    @cached_property
    def _effects(self) -> Array:
        """Returns the sum of the effects of all features on clicks and price, (kinds, arms, 2)."""
        rng = np.random.default_rng(self.seed)
        total = np.zeros((len(self.kinds), len(BANNERS), 2))
        for name, values in FEATURES.items():
            effects = rng.normal(size=(len(values), len(BANNERS), 2))
            total += effects[[values.index(kind[name]) for kind in self.kinds]]
        return total + rng.normal(size=(len(BANNERS), 2))

    @cached_property
    def click_rates(self) -> Array:
        """(kinds, arms)."""
        return np.clip(0.16 + 0.07 * self._effects[..., 0], *CLICK_RATES)

    @cached_property
    def usd_means(self) -> Array:
        """(kinds, arms)."""
        return np.clip(0.018 + 0.005 * self._effects[..., 1], *USD_MEANS)

    @cached_property
    def usd_limits(self) -> list[float]:
        """Returns the maximum cost of each banner, which is the hold of a decision for it."""
        highest = self.usd_means.max(axis=0) * (1.0 + USD_NOISE)
        return [round(float(limit), 6) for limit in np.minimum(highest + 1e-6, USD_MAX)]

    @cached_property
    def _draws(self) -> tuple[Integers, Array, Array, Array, Integers]:
        """Returns per request: kind of visitor; uniforms for click, price and feedback; delay of the feedback."""
        rng = np.random.default_rng([self.seed, 1])
        kinds = rng.choice(len(self.kinds), size=self.requests, p=self.weights / self.weights.sum())
        click, price, fate = rng.random((3, self.requests))
        longest = min(DELAY_REQUESTS_MAX, self.requests // 10)
        return kinds, click, price, fate, rng.integers(0, longest, size=self.requests, endpoint=True)

    def visitor(self, number: int) -> dict[str, str]:
        """Returns the context of a request."""
        return self.kinds[int(self._draws[0][number])]

    def mean_reward(self, number: int, banner: str) -> float:
        """Returns the click rate of a banner for this visitor."""
        return float(self.click_rates[self._draws[0][number], BANNERS.index(banner)])

    def outcome(self, number: int, banner: str) -> Outcome:
        """Returns whether this visitor clicks, and the cost of the impression."""
        kinds, click, price, _, _ = self._draws
        mean = self.usd_means[kinds[number], BANNERS.index(banner)]
        usd = mean * (1.0 + USD_NOISE * (2.0 * price[number] - 1.0))
        clicked = click[number] < self.mean_reward(number, banner)
        return Outcome(float(clicked), {USD: round(float(usd), 6), IMPRESSIONS: 1.0})

    def is_void(self, number: int) -> bool:
        """Tells whether the banner was not shown, for instance because of a lost auction."""
        return bool(self._draws[3][number] < VOID_SHARE)

    def is_missing(self, number: int) -> bool:
        """Tells whether the outcome is never reported."""
        return bool(VOID_SHARE <= self._draws[3][number] < VOID_SHARE + MISSING_SHARE)

    def delay(self, number: int) -> int:
        """Returns the delay of the feedback in requests."""
        return int(self._draws[4][number])

    @cached_property
    def optimum(self) -> float:
        """Returns the clicks per request of the best static policy with known rates and prices and the same budgets.

        >>> world = World(1000)
        >>> float(world.click_rates.min()) < world.optimum < float(world.click_rates.max())
        True
        """
        costs: NDArray[np.float64] = np.stack([self.usd_means, np.ones_like(self.usd_means)], axis=-1)
        pace = [USD_PER_REQUEST, IMPRESSIONS_PER_REQUEST]
        return static_optimum(self.click_rates, costs, pace, self.weights / self.weights.sum()).value

    def config(self) -> dict[str, Any]:
        """Returns the campaign's configuration."""
        return {
            "id": CAMPAIGN,
            "seed": self.seed,
            "horizon": self.requests,
            "arms": [
                {"id": banner, "max_cost": {USD: limit}} for banner, limit in zip(BANNERS, self.usd_limits, strict=True)
            ],
            "resources": [
                {"id": USD, "budget": round(USD_PER_REQUEST * self.requests, 6), "max_cost": USD_MAX},
                {"id": IMPRESSIONS, "budget": int(IMPRESSIONS_PER_REQUEST * self.requests), "max_cost": 1},
            ],
            "context": {
                "features": [
                    {"name": name, "type": "category", "values": list(values)} for name, values in FEATURES.items()
                ]
            },
            "feedback": {"ttl_seconds": self.ttl_seconds, "missing_reward": None},
        }
