"""The answers of the service as typed values, without fields that this version does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Ids of fallbacks start with this. The service does not know them, so feedback on them can teach it nothing wrong.
FALLBACK_PREFIX = "fallback:"
FALLBACK = "fallback"

Answer = TypeVar("Answer", bound="DataclassInstance")


def read(kind: type[Answer], body: Mapping[str, Any], **values: Any) -> Answer:
    """Return a dataclass from the fields of the body that it has; `values` replace fields of the body.

    >>> read(NewKey, {"id": "key-1", "key": "cbwk_…", "of_later_versions": 1})
    NewKey(id='key-1', key='cbwk_…')
    """
    known = {field.name: body[field.name] for field in fields(kind) if field.name in body}
    return kind(**(known | values))


@dataclass(frozen=True)
class ArmThought:
    """The policy's estimate of one arm."""

    id: str
    reward: float
    cost: Mapping[str, float]
    score: float
    probability: float
    eligible: bool
    why_not: str | None


@dataclass(frozen=True)
class Explanation:
    """The reasons for a choice: every arm's estimate, the prices and γ."""

    arms: tuple[ArmThought, ...]
    prices: Mapping[str, float]
    gamma: float
    why_no_arms: str | None = None  # if there are none: not_stored


@dataclass(frozen=True)
class WouldHave:
    """In shadow mode: the policy's own choice, and what it expects of it."""

    arm: str | None
    reason: str
    probability: float
    reward: float
    cost: Mapping[str, float]


@dataclass(frozen=True)
class Decision:
    """The arm to play, or None. If `is_fallback`, the service did not answer and holds nothing for it."""

    decision_id: str
    campaign_id: str
    arm: str | None
    reason: str
    probability: float
    hold: Mapping[str, float]
    expires_at: datetime | None
    round: int | None
    policy_version: int | None
    explanation: Explanation | None = None
    replayed: bool = False
    would_have: WouldHave | None = None  # in shadow mode

    @classmethod
    def of(cls, body: Mapping[str, Any], *, replayed: bool = False) -> Decision:
        """Return the value of a response body."""
        expires_at = body["expires_at"]
        return read(
            cls,
            body,
            expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
            explanation=_explanation(body) if "arms" in body else None,
            would_have=read(WouldHave, body["would_have"]) if "would_have" in body else None,
            replayed=replayed,
        )

    @classmethod
    def fallback(cls, campaign_id: str, decision_id: str, arm: str | None) -> Decision:
        """Return the decision to play when no answer came.

        >>> late = Decision.fallback("summer-sale", "visit-1", "banner-a")
        >>> late.arm, late.decision_id, late.needs_feedback
        ('banner-a', 'fallback:visit-1', False)
        """
        fallback_id = (FALLBACK_PREFIX + decision_id)[:128]
        return cls(fallback_id, campaign_id, arm, FALLBACK, 1.0, {}, None, None, None)

    @property
    def is_fallback(self) -> bool:
        """Whether the client decided because the service did not answer."""
        return self.reason == FALLBACK

    @property
    def needs_feedback(self) -> bool:
        """Whether the service holds budget until costs or a void are reported."""
        return self.arm is not None and not self.is_fallback


def _explanation(body: Mapping[str, Any]) -> Explanation:
    arms = tuple(read(ArmThought, arm) for arm in body["arms"])
    return Explanation(arms, body["prices"], body["gamma"], body.get("why_no_arms"))


@dataclass(frozen=True)
class FeedbackResult:
    """The state of a decision after feedback."""

    campaign_id: str
    decision_id: str
    status: str
    learned: bool
    policy_version: int | None
    warnings: tuple[str, ...] = ()
    replayed: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any], *, replayed: bool = False) -> FeedbackResult:
        """Return the value of a response body."""
        return read(cls, body, warnings=tuple(body["warnings"]), replayed=replayed)

    @classmethod
    def ignored(cls, campaign_id: str, decision_id: str) -> FeedbackResult:
        """Return the result of feedback on a fallback, which the service does not know."""
        return cls(campaign_id, decision_id, "ignored", False, None)


@dataclass(frozen=True)
class Window:
    """A limit of a resource in its present period."""

    period: str
    starts_at: str
    ends_at: str
    limit: float
    held: float
    spent: float
    free: float


@dataclass(frozen=True)
class Account:
    """One resource of a campaign; pace 1 is on plan."""

    id: str
    granted: float
    held: float
    spent: float
    overrun: float
    free: float
    pace: float | None
    marginal_value: float | None = None  # reward that one more unit would earn
    windows: tuple[Window, ...] = ()
    unit: str | None = None


@dataclass(frozen=True)
class Budget:
    """The accounts of one campaign."""

    campaign_id: str
    status: str
    round: int
    flight: float  # share of the campaign that is over, from 0 to 1
    last_event_at: str
    exhausted: bool  # the free amounts pay for none of the campaign's own arms
    resources: tuple[Account, ...]
    damaged: bool = False  # the stored configuration cannot be read, and `resources` is empty
    display_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    mode: str = "live"
    holdout: float | None = None  # share of the decisions that a baseline makes
    reward: float | None = None  # sum of the rewards learnt, None if it is not known
    cost_per_reward: Mapping[str, float] | None = None  # by resource, None unless the reward is above 0

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Budget:
        """Return the value of a response body."""
        return read(cls, body, resources=_accounts(body["resources"]))

    def __getitem__(self, resource: str) -> Account:
        return next(account for account in self.resources if account.id == resource)


def _accounts(bodies: Any) -> tuple[Account, ...]:
    windows = [tuple(read(Window, window) for window in body.get("windows", ())) for body in bodies]
    return tuple(read(Account, body, windows=inside) for body, inside in zip(bodies, windows, strict=True))


@dataclass(frozen=True)
class Portfolio:
    """A portfolio with its configuration; `campaigns` share its budgets."""

    id: str
    version: int
    config: Mapping[str, Any]
    created_at: str | None = None  # these two are shown, but not in the answer to a change
    campaigns: tuple[str, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Portfolio:
        """Return the value of a response body."""
        return read(cls, body, campaigns=tuple(body.get("campaigns", ())))


@dataclass(frozen=True)
class SharedAccount:
    """One resource of a portfolio."""

    id: str
    granted: float
    held: float
    spent: float
    overrun: float
    free: float
    marginal_value: float  # reward that one more unit would earn; it is added to the prices of every campaign
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True)
class PortfolioBudget:
    """The accounts of a portfolio. `campaigns` has what each of them holds and has spent."""

    portfolio_id: str
    rounds: int
    expected_rounds: int
    resources: tuple[SharedAccount, ...]
    campaigns: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> PortfolioBudget:
        """Return the value of a response body."""
        windows = [tuple(read(Window, window) for window in each["windows"]) for each in body["resources"]]
        pairs = zip(body["resources"], windows, strict=True)
        return read(cls, body, resources=tuple(read(SharedAccount, each, windows=inside) for each, inside in pairs))

    def __getitem__(self, resource: str) -> SharedAccount:
        return next(account for account in self.resources if account.id == resource)


@dataclass(frozen=True)
class Campaign:
    """The present state of a campaign."""

    id: str
    status: str
    version: int
    round: int
    policy_version: int
    created_at: datetime
    config: Mapping[str, Any]
    accounts: tuple[Account, ...]
    prices: Mapping[str, float]
    rules: int = 1  # services of version 0.1 do not send it
    display_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Campaign:
        """Return the value of a response body."""
        created_at = datetime.fromisoformat(body["created_at"])
        return read(cls, body, created_at=created_at, accounts=_accounts(body["accounts"]))


@dataclass(frozen=True)
class CampaignVersion:
    """A campaign after it was created or changed."""

    id: str
    version: int
    status: str
    config: Mapping[str, Any]
    rules: int = 1
    warnings: tuple[str, ...] = ()  # when it was created


@dataclass(frozen=True)
class CampaignSummary:
    """A campaign in a list."""

    id: str
    status: str
    version: int
    round: int
    created_at: str
    display_name: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Adjusted:
    """An account after a correction."""

    campaign_id: str
    resource: str
    spent: float
    overrun: float
    free: float


@dataclass(frozen=True)
class Check:
    """One sum, stored and recomputed."""

    name: str
    ok: bool
    expected: Any
    found: Any


@dataclass(frozen=True)
class Verification:
    """Whether the accounts agree with the log."""

    ok: bool
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Verification:
        """Return the value of a response body."""
        return cls(body["ok"], tuple(read(Check, check) for check in body["checks"]))


@dataclass(frozen=True)
class NewKey:
    """The text of a new key, which the service shows only once."""

    id: str
    key: str
