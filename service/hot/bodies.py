"""The request bodies of the hot endpoints: the one definition that reads them, documents them and explains refusals.

msgspec decodes a body straight into the structs below and stops at the first error. A body it refuses is read a second
time, slowly: every value is compared with the same structs, and the problem document lists all errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, TypeVar, cast

from msgspec import UNSET, Meta, Struct, UnsetType, convert
from msgspec import inspect as kinds
from msgspec.json import Decoder
from pydantic_core import from_json

from service.complaints import Fault
from service.engine.commands import Decide, Feedback
from service.ids import ID_PATTERN, NOT_AN_ID, is_id
from service.limits import ACTIONS_MAX, ARMS_MAX, EXCLUDE_MAX, ITEMS_MAX, RESOURCES_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX, amount, micros
from service.problems import BadRequest, Misfit, Problem
from service.responses import ERRORS_MAX, invalid
from service.words import not_a_field

T = TypeVar("T", bound="Body")
Rule = Callable[[Any], object]  # raises a ValueError

_FLOAT_MAX = sys.float_info.max


def _check_actions(actions: Sequence[Any]) -> None:
    """Refuse actions, decoded or still as JSON, of which two have one id."""
    if len({action["id"] if isinstance(action, dict) else action.id for action in actions}) < len(actions):
        raise ValueError("must not have the same id twice")


# In Python `$` also matches before a line break at the end.
Id = Annotated[str, Meta(pattern=ID_PATTERN.replace("$", r"\Z"))]
CampaignId = Annotated[Id, Meta(description="id of the campaign")]
# `Body.check` applies the rules to good bodies, and the second pass to each value, to name it.
Number = Annotated[float, Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)]
Cost = Annotated[float, Meta(ge=0, le=AMOUNT_MAX)]
Amount = Annotated[float, Meta(ge=0, le=AMOUNT_MAX, description="at most six decimals", extra={"rule": micros})]
MaxCost = Annotated[dict[Id, Amount], Meta(max_length=RESOURCES_MAX)]
Features = dict[str, Number | Annotated[str, Meta(max_length=VALUE_LENGTH_MAX)]] | list[Number]

_CONTEXT = {"device": "mobile", "hour": 13, "site": "news.example"}
_FEEDBACK = {
    "campaign_id": "summer-sale",
    "decision_id": "0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
    "reward": 1.0,
    "costs": {"usd": 0.031, "impressions": 1},
}


class Body(Struct, gc=False, forbid_unknown_fields=True):
    """A request's body or a part of one. Numbers are read as floats, so that 1 and 1.0 are the same request."""

    example: ClassVar[dict[str, Any]] = {}

    def check(self) -> None:
        """Raise a ValueError if the body breaks a rule that its types do not have."""


class Action(Body):
    """One candidate of a request, under `model: "shared"`."""

    id: Annotated[Id, Meta(description="id of the action, unique in the request")]
    features: Annotated[Features, Meta(description="what describes the action, as `arm_features` declares it")]
    max_cost: Annotated[
        MaxCost | None,
        Meta(description="by resource: the most that a decision for it costs; by default that of the dearest arm"),
    ] = None

    def as_json(self) -> dict[str, Any]:
        """The action as the engine takes and stores it."""
        named = {"id": self.id, "features": self.features}
        if self.max_cost is None:
            return named
        return {**named, "max_cost": _amounts(self.max_cost)}


def _amounts(costs: dict[str, float]) -> dict[str, float]:
    """Amounts as the engine stores them: whole numbers as integers, and 0 without a sign."""
    return {name: amount(micros(cost)) for name, cost in costs.items()}


class DecideItem(Body):
    """One request of a batch."""

    context: Annotated[Features, Meta(description="by feature name, or a list where the campaign declares a dimension")]
    decision_id: Annotated[Id | None, Meta(description="chosen by the client, to repeat the request safely")] = None
    exclude: Annotated[Sequence[Id], Meta(max_length=EXCLUDE_MAX, description="arms not to choose")] = ()
    actions: Annotated[
        Annotated[list[Action], Meta(min_length=1, max_length=ACTIONS_MAX, extra={"rule": _check_actions})] | None,
        Meta(description='replace the campaign\'s arms, where its model is "shared"'),
    ] = None
    baseline_arm: Annotated[
        Id | UnsetType | None, Meta(description="in shadow mode, and only there: what will be played, null for nothing")
    ] = UNSET
    max_cost: Annotated[
        MaxCost | None,
        Meta(
            description="by resource: the most that this decision can cost with any arm, at most what is declared for "
            "each; the hold is that",
            examples=[{"usd": 0.002}],
        ),
    ] = None
    max_costs: Annotated[
        Annotated[dict[Id, MaxCost], Meta(max_length=ARMS_MAX)] | None,
        Meta(description="by arm and resource: wins over `max_cost`", examples=[{"banner-a": {"usd": 0.002}}]),
    ] = None

    def check(self) -> None:
        if self.actions is not None:
            _check_actions(self.actions)
            for cost in chain(*(action.max_cost.values() for action in self.actions if action.max_cost)):
                micros(cost)
        if self.max_cost or self.max_costs:
            for cost in chain(*(costs.values() for costs in (self.max_cost or {}, *(self.max_costs or {}).values()))):
                micros(cost)

    def command(self, campaign_id: str, *, explain: bool = False) -> Decide:
        """The command for the engine."""
        actions = None if self.actions is None else [action.as_json() for action in self.actions]
        baseline = () if self.baseline_arm is UNSET else (self.baseline_arm,)
        decide = Decide(campaign_id, self.decision_id, self.context, self.exclude, actions, explain, baseline)
        if not self.max_cost and not self.max_costs:
            return decide
        own = {arm: _amounts(costs) for arm, costs in (self.max_costs or {}).items()}
        return decide._replace(max_cost=_amounts(self.max_cost or {}), max_costs=own)


class DecideRequest(DecideItem, kw_only=True):
    """Which of these arms for this request?"""

    campaign_id: CampaignId
    explain: Annotated[bool, Meta(description="add what the policy thought of every arm")] = False

    example = {
        "campaign_id": "summer-sale",
        "decision_id": "checkout-7f3a",
        "context": _CONTEXT,
        "exclude": ["banner-b"],
        "explain": False,
    }


class DecideBatch(Body):
    """Several requests of one campaign, answered in one transaction."""

    campaign_id: CampaignId
    items: Annotated[list[DecideItem], Meta(max_length=ITEMS_MAX, description="the requests, at most 1,000")]

    example = {
        "campaign_id": "summer-sale",
        "items": [{"context": _CONTEXT}, {"context": {"device": "tv", "hour": 7, "site": "shop.example"}}],
    }

    def check(self) -> None:
        for item in self.items:
            if item.actions is not None or item.max_cost or item.max_costs:
                item.check()


class FeedbackItem(Body):
    """One report of a batch."""

    decision_id: Annotated[Id, Meta(description="id of the decision")]
    reward: Annotated[
        Number | None, Meta(description="what the decision earned; clipped to the campaign's range of rewards")
    ] = None
    costs: Annotated[
        Annotated[dict[Id, Cost], Meta(max_length=RESOURCES_MAX)] | None,
        Meta(description="by resource; {} costs nothing; beside others, one that is missing follows `missing_cost`"),
    ] = None
    void: Annotated[bool, Meta(description="not shown: frees the hold, teaches nothing")] = False
    campaign_id: Annotated[
        Id | UnsetType, Meta(description="id of the campaign; not needed if it stands beside `items`")
    ] = UNSET

    def check(self) -> None:
        """Raise a ValueError unless the body has reward or costs, or is void."""
        if self.void is not (self.reward is None and self.costs is None):
            if self.void:
                raise Misfit("void", "must stand alone, without reward and costs")
            raise ValueError("must have reward, costs or void: true")

    def command(self, campaign_id: str) -> Feedback:
        """The command for the engine."""
        return Feedback(campaign_id, self.decision_id, self.reward, self.costs, self.void)


class FeedbackRequest(FeedbackItem, kw_only=True):
    """What became of a decision: reward, costs, both, or that it was void."""

    campaign_id: CampaignId

    example = _FEEDBACK


class FeedbackBatch(Body):
    """What became of several decisions, booked in one transaction."""

    items: Annotated[list[FeedbackItem], Meta(max_length=ITEMS_MAX, description="the reports, at most 1,000")]
    campaign_id: Annotated[
        Id | UnsetType, Meta(description="id of the campaign of all items, which then need none of their own")
    ] = UNSET

    example = {"items": [_FEEDBACK]}

    def check(self) -> None:
        for report in self.items:
            report.check()

    def commands(self) -> list[Feedback | Problem]:
        """The command of each report, or the Problem of a report without campaign or with another one."""
        shared, commands = self.campaign_id, list[Feedback | Problem]()
        for at, report in enumerate(self.items):
            if isinstance(report, Problem):  # see `read`
                commands.append(report)
                continue
            own = shared if report.campaign_id is UNSET else report.campaign_id
            if own is UNSET or (shared is not UNSET and own != shared):
                message = "is required, here or beside items" if own is UNSET else "must be that beside items or absent"
                place = ("items", str(at), "campaign_id")
                commands.append(invalid(f"items.{at}", "FeedbackItem", [(place, message)]))
            else:
                commands.append(report.command(own))
        return commands


_type_info: Callable[[type[Body]], Any] = cache(kinds.type_info)


def read(body: bytes, decoder: Decoder[T]) -> T:
    """The struct that a body stands for. Raises the Problem of a body that stands for none.

    A batch with bad items is read all the same: among its `items` a Problem stands in the place of each.

    >>> read(b'{"campaign_id": "c", "context": {"hour": 13}}', Decoder(DecideRequest)).context
    {'hour': 13.0}
    """
    try:
        struct = decoder.decode(body)
        struct.check()
    except ValueError:  # also what msgspec raises
        return read_slowly(body, decoder.type)
    return struct


def read_slowly(body: bytes, kind: type[T]) -> T:
    """The same by the second pass, which finds all errors."""
    try:
        value = from_json(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}", kind="not-json") from None
    struct = _converted(_type_info(kind), value, ())
    if isinstance(struct, Problem):
        raise struct
    return cast(T, struct)


def _converted(info: kinds.StructType, value: Any, path: tuple[str, ...]) -> Any:
    """The struct or, if the value has faults, the Problem that lists the first of them."""
    try:
        struct = cast(Body, convert(value, info.cls))
        struct.check()
    except ValueError:
        faults = list(islice(_faults(info, value, path), ERRORS_MAX))
        if faults:
            return invalid(".".join(path) or "the body", info.cls.__name__, faults)
    else:
        return struct
    # Nothing is wrong with it but some of its items.
    ((items, _),) = (option for field in info.fields if field.name == "items" for option in _options(field.type))
    item = cast(kinds.StructType, cast(kinds.ListType, items).item_type)
    structs = [_converted(item, part, ("items", str(at))) for at, part in enumerate(value["items"])]
    return info.cls(**{**value, "items": structs})


def _faults(kind: kinds.Type, value: Any, path: tuple[str, ...]) -> Iterator[Fault]:
    """Every place in a JSON value that its type refuses, and why; the items of a batch are left out."""
    options = list(_options(kind))
    option, rule = next((fitting for fitting in options if _fits(fitting[0], value)), (None, None))
    if option is None:
        yield path, f"must be {' or '.join(_described(option) for option, _ in options)}"
        return
    right = True
    for fault in _inner_faults(option, value, path):
        right = False
        yield fault
    if right and rule is not None:
        try:
            rule(value)
        except ValueError as error:
            yield ((*path, error.field), error.message) if isinstance(error, Misfit) else (path, str(error))


def _inner_faults(kind: kinds.Type, value: Any, path: tuple[str, ...]) -> Iterator[Fault]:
    if isinstance(kind, kinds.StructType):
        names = [field.name for field in kind.fields]
        for field in kind.fields:
            if field.name in value:
                yield from _faults(field.type, value[field.name], (*path, field.name))
            elif field.required:
                yield (*path, field.name), "is required"
        for name in value:
            if name not in names:
                yield (
                    (*path, name),
                    not_a_field(name, names),
                )
    elif isinstance(kind, kinds.DictType):
        for name, inner in value.items():
            for _, message in _faults(kind.key_type, name, ()):
                yield (*path, name), f"its name {message}"
            yield from _faults(kind.value_type, inner, (*path, name))
    elif isinstance(kind, kinds.ListType) and path != ("items",):
        for at, inner in enumerate(value):
            yield from _faults(kind.item_type, inner, (*path, str(at)))


def _options(kind: kinds.Type, rule: Rule | None = None) -> Iterator[tuple[kinds.Type, Rule | None]]:
    """The types a value may have, each with the rule for values without other faults."""
    if isinstance(kind, kinds.Metadata):
        yield from _options(kind.type, (kind.extra or {}).get("rule"))
    elif isinstance(kind, kinds.UnionType):
        for option in kind.types:
            yield from _options(option)
    elif isinstance(kind, kinds.StructType) and issubclass(kind.cls, FeedbackItem):
        yield kind, lambda value: cast(Body, convert(value, kind.cls)).check()
    elif isinstance(kind, kinds.StrType) and kind.pattern is not None:
        yield kind, _check_id
    else:
        yield kind, rule


def _check_id(text: str) -> None:
    if not is_id(text):
        raise ValueError(NOT_AN_ID)


# What a value of a type is in JSON, in words without limits and with them.
_IN_JSON: dict[type[kinds.Type], tuple[tuple[type, ...], str, str]] = {
    kinds.StructType: ((dict,), "an object", ""),
    kinds.DictType: ((dict,), "an object", "an object of {} to {} fields"),
    kinds.ListType: ((list,), "a list", "a list of {} to {} items"),
    kinds.StrType: ((str,), "a string", "a string of {} to {} characters"),
    kinds.FloatType: ((int, float), "a finite number", "a number from {} to {}"),
    kinds.BoolType: ((bool,), "true or false", ""),
    kinds.NoneType: ((type(None),), "null", ""),
}


def _limits(kind: kinds.Type) -> tuple[float, float]:
    """The least and the greatest number or size; without a limit the greatest float."""
    if isinstance(kind, kinds.FloatType):
        return cast(float, kind.ge), cast(float, kind.le)
    return getattr(kind, "min_length", None) or 0, getattr(kind, "max_length", None) or _FLOAT_MAX


def _fits(kind: kinds.Type, value: Any) -> bool:
    """Whether a value has the type and keeps its limits, apart from what is inside it."""
    types, _, limited = _IN_JSON[type(kind)]
    low, high = _limits(kind)
    return type(value) in types and (not limited or low <= (len(value) if types[0] is not int else value) <= high)


def _described(kind: kinds.Type) -> str:
    _, unlimited, limited = _IN_JSON[type(kind)]
    low, high = _limits(kind)
    return unlimited if high == _FLOAT_MAX else limited.format(low, high)
