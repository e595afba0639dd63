"""Everything that may change a database, as commands for the engine's queue, and what they are answered with.

A command names a campaign, if it has one, by its text id. Answers are dictionaries with the fields of the interface,
ready to be turned into JSON; what cannot be done is a `service.problems.Problem`, raised in the caller's `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from cbwk_core.model import Model

DIGEST_BYTES = 8


class Answer(NamedTuple):
    """What a command is answered with."""

    body: dict[str, Any]
    replayed: bool = False  # the same request again: header Idempotent-Replayed
    status: int = 200


class Decide(NamedTuple):
    """One request for an arm. `context` is as the client sent it, its numbers as floats, so that 1 is 1.0; the engine
    encodes it with the campaign's encoder."""

    campaign_id: str
    decision_id: str | None
    context: Mapping[str, Any] | Sequence[float]
    exclude: Sequence[str] = ()
    actions: Sequence[Mapping[str, Any]] | None = None
    explain: bool = False
    baseline: tuple[str | None, ...] = ()  # what the caller will play, where it says so
    max_cost: Mapping[str, float] | None = None  # of every arm, by resource
    max_costs: Mapping[str, Mapping[str, float]] | None = None  # by arm and resource

    @property
    def is_bare(self) -> bool:
        """Whether the request has a context and nothing else that is part of its identity."""
        return not (self.exclude or self.actions is not None or self.baseline or self.max_cost or self.max_costs)

    @property
    def own_costs(self) -> dict[str, Any] | None:
        """The max costs that the request brings, by the names of their fields; None if it brings none."""
        given = {"max_cost": self.max_cost, "max_costs": self.max_costs}
        return {name: costs for name, costs in given.items() if costs} or None

    @property
    def digest(self) -> bytes:
        """The digest of the request's identity in a canonical form: -0.0 is 0.0, and an exclusion counts once."""
        return self._digest(sorted({*self.exclude}), _number)

    def _digest(self, exclude: Sequence[str], number: Callable[[float], float]) -> bytes:
        context = _sorted(self.context)
        if b"-0.0" in context:  # seldom, and the canonical form takes longer than the digest
            context = _sorted(_canonical(self.context, number))
        digest = blake2b(context, digest_size=DIGEST_BYTES)
        if not self.is_bare:
            costs = () if self.own_costs is None else (self.own_costs,)
            digest.update(_sorted(_canonical([exclude, self.actions, *self.baseline, *costs], number)))
        return digest.digest()

    def is_answered_by(self, row: Any) -> bool:
        """Whether a stored decision answered the same request: in any order of keys, with 1 equal to 1.0, -0.0 to 0.

        A row of a bare request has the context and no digest.
        """
        stored = row["request_digest"]
        if stored:
            # Version 0.1 made the digest of -0.0 and of exclusions as they were sent.
            return bool(stored == self.digest or stored == self._digest(sorted(self.exclude), float))
        return self.is_bare and _sorted(_canonical(orjson.loads(row["context"]))) == _sorted(_canonical(self.context))


class Feedback(NamedTuple):
    """What became of a decision: reward, costs by resource id as exact decimals in text or numbers, or void."""

    campaign_id: str
    decision_id: str
    reward: float | None = None
    costs: Mapping[str, float] | None = None
    void: bool = False


class CreateCampaign(NamedTuple):
    """A campaign's configuration as the interface has it, validated, defaults filled in."""

    config: dict[str, Any]
    actor: str = ""
    # The fields that the service chose, if an existing campaign with the same other fields is answered like a new one.
    chosen: tuple[str, ...] | None = None


class PatchCampaign(NamedTuple):
    """A validated PATCH body: only the fields that were given."""

    campaign_id: str
    changes: dict[str, Any]
    actor: str = ""


class CreatePortfolio(NamedTuple):
    """A portfolio's configuration as the interface has it, validated, defaults filled in."""

    config: dict[str, Any]
    actor: str = ""


class PatchPortfolio(NamedTuple):
    """A validated PATCH body of a portfolio: only the fields that were given."""

    portfolio_id: str
    changes: dict[str, Any]
    actor: str = ""


class SetStatus(NamedTuple):
    """pause, resume or archive."""

    campaign_id: str
    action: str
    actor: str = ""


class Adjust(NamedTuple):
    """A signed correction of what was spent of a resource, in its unit."""

    campaign_id: str
    resource: str
    amount: float
    reason: str
    actor: str = ""


class Once(NamedTuple):
    """A command with an Idempotency-Key, and the digest of its request. It has a transaction of its own."""

    command: CreateCampaign | CreatePortfolio | Adjust
    key: str
    digest: bytes

    @property
    def campaign_id(self) -> str | None:
        """The campaign whose lock the command needs, if it needs one."""
        return self.command.campaign_id if isinstance(self.command, Adjust) else None


def request_digest(path: str, body: Any) -> bytes:
    """The digest of a request with a body of JSON, in the canonical form in which 1 is 1.0.

    >>> request_digest("/a", {"x": 1, "y": 2}) == request_digest("/a", {"y": 2.0, "x": 1.0})
    True
    """
    return blake2b(_sorted([path, _canonical(body)]), digest_size=DIGEST_BYTES).digest()


class ImportModel(NamedTuple):
    """A model that was found fit for a campaign of this shape, and the bytes it came in."""

    campaign_id: str
    model: Model
    shape: dict[str, Any]
    data: bytes
    actor: str = ""


class EndStage(NamedTuple):
    """What stage one has found for one version of a configuration: Z, and the ÔPT and M(T0) it follows from."""

    campaign_id: str
    config_version: int
    radius: float
    optimum: float
    margin: float


class Expire(NamedTuple):
    """Look for holds that are past their time."""

    number: int | None = None  # only those of this campaign


class CreateKey(NamedTuple):
    """A new API key; the answer is the only place its text is ever seen."""

    name: str
    role: str
    campaigns: tuple[str, ...] | None = None
    actor: str = ""
    requests_per_second: float | None = None


class RevokeKey(NamedTuple):
    """Make a key invalid; the last admin key stays."""

    key_id: str
    actor: str = ""


class CreateWebhook(NamedTuple):
    """An address that gets messages; the answer is the only place its secret is ever seen."""

    url: str
    events: tuple[str, ...]
    thresholds: tuple[int, ...]
    campaigns: tuple[str, ...] | None = None
    actor: str = ""


class DeleteWebhook(NamedTuple):
    """Send no more messages to a webhook."""

    webhook_id: str
    actor: str = ""


Administer = PatchCampaign | SetStatus | Adjust | ImportModel | EndStage
OfPortfolio = CreatePortfolio | PatchPortfolio
OfWebhook = CreateWebhook | DeleteWebhook
Hot = Decide | Feedback
Command = Hot | CreateCampaign | Once | OfPortfolio | OfWebhook | Administer | Expire | CreateKey | RevokeKey


@dataclass(slots=True)
class Item:
    """A command in the queue: who waits for it, and until when."""

    command: Command
    deadline: float  # on the monotonic clock
    together: int = 0  # items of one number are in one transaction, all or nothing
    answer: Answer | BaseException | None = field(default=None)
    blocked_at: float = 0.0  # when another process first kept its campaign locked; 0: it did not

    @property
    def is_blocked(self) -> bool:
        """Whether it has to be tried again."""
        return self.answer is None and self.blocked_at > 0


def _sorted(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _number(value: float) -> float:
    """The number as a float; zero has no sign."""
    return value + 0.0


def _canonical(value: Any, number: Callable[[float], float] = _number) -> Any:
    """The value with `number` applied to its numbers."""
    kind = type(value)
    if kind is float or kind is int:
        return number(value)
    if isinstance(value, dict):
        return {key: _canonical(part, number) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(part, number) for part in value]
    return value
