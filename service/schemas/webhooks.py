"""Bodies of `/admin/webhooks`."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from service.limits import KEY_CAMPAIGNS_MAX, URL_LENGTH_MAX
from service.schemas.body import Body, UniqueIds
from service.schemas.view import At, View, example, page, shown

_WEBHOOK_ID, _URL = "webhook-3f9a", "https://hooks.example/cbwk"
_EVENTS = ["budget.threshold", "budget.exhausted"]
_MESSAGE = {
    "type": "budget.threshold",
    "timestamp": "2026-11-16T09:00:00Z",
    "data": {"campaign_id": "summer-sale", "resource": "usd", "threshold": 80, "granted": 250, "spent": 200.4},
}


def _once(items: list[Any]) -> list[Any]:
    if len({*items}) != len(items):
        raise ValueError("must not have the same value twice")
    return items


Event = Literal[
    "budget.threshold",
    "budget.exhausted",
    "budget.overrun",
    "window.threshold",
    "window.exhausted",
    "drift.noticed",
    "evaluation.done",
    "campaign.ended",
]
_UNIQUE = (AfterValidator(_once), Field(json_schema_extra={"uniqueItems": True}))
Events = Annotated[list[Event], Field(min_length=1, max_length=8), *_UNIQUE]
Thresholds = Annotated[
    list[Annotated[int, Field(ge=1, le=100)]],
    Field(max_length=20),
    *_UNIQUE,
]


class WebhookRequest(Body):
    """An address that gets signed messages."""

    model_config = example({"url": _URL, "events": _EVENTS, "thresholds": [80, 100], "campaigns": ["summer-sale"]})

    url: Annotated[str, StringConstraints(min_length=1, max_length=URL_LENGTH_MAX)] = Field(
        description="begins with https:// and has a public address, unless CBWK_WEBHOOK_PRIVATE allows others"
    )
    events: Events = Field(description="kinds of messages to send")
    thresholds: Thresholds = Field(
        default=[50, 80, 95, 100], description="of budget.threshold and window.threshold: percent spent"
    )
    campaigns: Annotated[UniqueIds, Field(min_length=1, max_length=KEY_CAMPAIGNS_MAX)] | None = Field(
        default=None, description="the only campaigns that messages are about; null: all"
    )


class WebhookMade(View):
    """A new webhook; no other response contains its secret."""

    id: str = shown(_WEBHOOK_ID, "id of the webhook")
    secret: str = shown("whsec_the-only-time-this-text-is-ever-shown", "signs messages: Standard Webhooks")


class WebhookView(View):
    """A webhook without its secret."""

    id: str = shown(_WEBHOOK_ID, "id of the webhook")
    url: str = shown(_URL, "address that gets the messages")
    events: list[str] = shown(_EVENTS, "kinds of messages that are sent")
    thresholds: list[int] = shown([80, 100], "percent spent, for thresholds of budgets and windows")
    campaigns: list[str] | None = shown(["summer-sale"], "the only campaigns that messages are about; null: all")
    created_at: At = Field(description="when it was created")


class WebhookDeleted(View):
    """A webhook that gets no more messages."""

    id: str = shown(_WEBHOOK_ID, "id of the webhook")
    deleted: bool = shown(True, "always true")


class DeliveryView(View):
    """A message and what became of it."""

    id: str = shown("msg_0197f0c4-8a00-7000-8000-5d1c2f0b9e11", "the header webhook-id, the same in every attempt")
    event: str = shown("budget.threshold", "kind of the message")
    campaign_id: str | None = shown("summer-sale", "id of the campaign that it is about; null for none")
    at: At = Field(description="when the event happened")
    status: Literal["waiting", "delivered", "failed"] = shown("delivered", "failed: not delivered within a day")
    attempts: int = shown(1, "number of attempts so far")
    next_attempt_at: str | None = shown(None, "when it is sent again; null if it is not")
    response_status: int | None = shown(200, "of the last attempt that was answered")
    error: str | None = shown(None, "why the last attempt failed")
    finished_at: str | None = shown("2026-11-16T09:00:01Z", "when it was delivered or given up; null while it waits")
    body: dict[str, Any] = shown(_MESSAGE, "the message")


WebhookPage = page("WebhookPage", WebhookView, "Webhooks in the order of their creation.")
DeliveryPage = page("DeliveryPage", DeliveryView, "Messages, newest first; those of 30 days are kept.")
