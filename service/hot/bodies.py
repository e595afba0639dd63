"""Bodies of `/decide` and `/feedback` as they usually are, from their bytes to values in a third of the time.

The models of `deciding.py` say what a body may be and what is wrong with one. What is read here is less: of every body
they make the same values, and of any other, right or wrong, there is None here, and it is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from service.ids import are_ids, is_id
from service.limits import EXCLUDE_MAX, ITEMS_MAX, RESOURCES_MAX, VALUE_LENGTH_MAX
from service.money import AMOUNT_MAX

# Whole digits that the models take of a number; here an exponent could make a longer one small again.
DIGITS_MAX = 4_300
# Of so many digits in a row every 256th byte is a digit, too, and no 16 others in a row are likely to be.
_STEP = 256
_SAMPLED = b"0" * (DIGITS_MAX // _STEP)
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)

_Feature = float | Annotated[str, Meta(max_length=VALUE_LENGTH_MAX)]
_Features = dict[str, _Feature] | list[float]
_Excluded = Annotated[Sequence[str], Meta(max_length=EXCLUDE_MAX)]
_Cost = Annotated[float, Meta(ge=0, le=AMOUNT_MAX)]
_Costs = Annotated[dict[str, _Cost], Meta(max_length=RESOURCES_MAX)]


class UsualItem(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One request of a batch, with neither actions nor a baseline."""

    context: _Features
    decision_id: str | None = None
    exclude: _Excluded = ()


class UsualDecide(UsualItem, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """The same alone."""

    campaign_id: str
    explain: bool = False


class UsualDecideBatch(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Several requests of one campaign."""

    campaign_id: str
    items: Annotated[list[UsualItem], Meta(max_length=ITEMS_MAX)]


class UsualFeedback(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What became of a decision."""

    campaign_id: str
    decision_id: str
    reward: float | None = None
    costs: _Costs | None = None
    void: bool = False


class UsualFeedbackBatch(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """What became of several."""

    items: Annotated[list[UsualFeedback], Meta(max_length=ITEMS_MAX)]


Usual = TypeVar("Usual", bound=Struct)

_DECIDE = Decoder(UsualDecide)
_DECIDE_BATCH = Decoder(UsualDecideBatch)
_FEEDBACK = Decoder(UsualFeedback)
_FEEDBACK_BATCH = Decoder(UsualFeedbackBatch)


def usual_decide(body: bytes) -> UsualDecide | None:
    """A request for an arm.

    >>> usual_decide(b'{"campaign_id": "c", "context": {"hour": 13}}').context
    {'hour': 13.0}
    >>> usual_decide(b'{"campaign_id": "c", "context": {"hour": null}}')
    """
    asked = _decoded(body, _DECIDE)
    if asked is None or not is_id(asked.campaign_id):
        return None
    named = asked.decision_id is None or is_id(asked.decision_id)
    return asked if named and (not asked.exclude or are_ids(asked.exclude)) else None


def usual_decide_batch(body: bytes) -> UsualDecideBatch | None:
    """Several of them."""
    batch = _decoded(body, _DECIDE_BATCH)
    if batch is None or not is_id(batch.campaign_id):
        return None
    ids = [item.decision_id for item in batch.items if item.decision_id is not None]
    ids += [arm for item in batch.items for arm in item.exclude]
    return batch if are_ids(ids) else None


def usual_feedback(body: bytes) -> UsualFeedback | None:
    """An outcome."""
    report = _decoded(body, _FEEDBACK)
    if report is None or not _says_something(report):
        return None
    return report if are_ids([report.campaign_id, report.decision_id, *(report.costs or ())]) else None


def usual_feedback_batch(body: bytes) -> list[UsualFeedback] | None:
    """Several of them."""
    batch = _decoded(body, _FEEDBACK_BATCH)
    if batch is None or not all(map(_says_something, batch.items)):
        return None
    # Campaigns and resources are few, however many reports there are.
    names = {report.campaign_id for report in batch.items}
    names.update(*[report.costs for report in batch.items if report.costs])
    return batch.items if are_ids([*names, *[report.decision_id for report in batch.items]]) else None


def _decoded(body: bytes, decoder: Decoder[Usual]) -> Usual | None:
    if len(body) > DIGITS_MAX and _SAMPLED in body[::_STEP].translate(_DIGITS_ALIKE):
        return None
    try:
        return decoder.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None


def _says_something(report: UsualFeedback) -> bool:
    """Whether it is void, or says what came of it, and not both."""
    return report.void is (report.reward is None and report.costs is None)
