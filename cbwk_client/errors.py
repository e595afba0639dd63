"""The errors that a call raises.

CbwkError
├── NoAnswerError                no usable answer in time; the same request may be sent again
│   ├── UnreachableError         no connection, or a broken one
│   ├── TimedOutError            the time of the call is over
│   └── UnavailableError         503 or another answer of a service that cannot serve now
│       └── TooManyRequestsError 429, the key's requests_per_second
├── RefusedError                 a problem document: the same request would be refused again
│   ├── BadRequestError 400
│   ├── UnauthorizedError 401
│   ├── ForbiddenError 403
│   ├── NotFoundError 404
│   │   ├── CampaignNotFoundError
│   │   └── DecisionNotFoundError
│   ├── ConflictError 409
│   │   ├── CampaignExistsError
│   │   ├── DecisionIdReusedError
│   │   ├── FeedbackDiffersError
│   │   ├── VersionDiffersError
│   │   └── BudgetBelowSpentError
│   ├── TooLargeError 413
│   └── InvalidError 422         `fields` has the reason for each field
├── UnexpectedAnswerError        the URL is not one of this service
├── BufferFullError              too many reports wait
└── UndeliveredError             `close` ended before every report was delivered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cbwk_client.reports import Report

TYPE_PREFIX = "urn:cbwk:problem:"


class CbwkError(Exception):
    """The base of every error about the service."""


class NoAnswerError(CbwkError):
    """No usable answer; `may_have_been_done` is false only if the service certainly did nothing."""

    def __init__(self, detail: str, *, may_have_been_done: bool, retry_after_seconds: float = 0.0) -> None:
        super().__init__(detail)
        self.may_have_been_done = may_have_been_done
        self.retry_after_seconds = retry_after_seconds


class UnreachableError(NoAnswerError):
    """There is no connection, or it broke."""


class TimedOutError(NoAnswerError):
    """The time of the call is over."""


class UnavailableError(NoAnswerError):
    """The service, or a proxy before it, cannot serve now."""


class TooManyRequestsError(UnavailableError):
    """The key has made more requests than its `requests_per_second` allows; nothing was done."""


class RefusedError(CbwkError):
    """The service answers with a problem document; `kind` is the last part of its type."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.kind = str(problem["type"]).removeprefix(TYPE_PREFIX)
        self.fields: dict[str, str] = {
            str(error["field"]): str(error["message"]) for error in problem.get("errors", ())
        }
        details = [str(problem.get("detail", "")), *(f"{name}: {why}" for name, why in self.fields.items())]
        super().__init__(f"{status} {self.kind}: {'; '.join(details)}")


class BadRequestError(RefusedError):
    """The service cannot read the body."""


class UnauthorizedError(RefusedError):
    """The key is not valid."""


class ForbiddenError(RefusedError):
    """The key does not allow this call."""


class NotFoundError(RefusedError):
    """There is nothing of this name."""


class CampaignNotFoundError(NotFoundError):
    """There is no such campaign, or the key may not see it."""


class DecisionNotFoundError(NotFoundError):
    """The campaign has no such decision."""


class ConflictError(RefusedError):
    """The request contradicts the stored state."""


class CampaignExistsError(ConflictError):
    """There is already a campaign with this id."""


class DecisionIdReusedError(ConflictError):
    """The decision id has been used with another context."""


class FeedbackDiffersError(ConflictError):
    """Another value has been reported before; `adjust` corrects it."""


class VersionDiffersError(ConflictError):
    """The campaign has been changed since `expected_version`."""


class BudgetBelowSpentError(ConflictError):
    """The new budget is below the amount spent and held."""


class TooLargeError(RefusedError):
    """The body is larger than the service allows."""


class InvalidError(RefusedError):
    """A field has a value that is not allowed."""


class UnexpectedAnswerError(CbwkError):
    """Neither an answer nor a problem of this service: a wrong address, or a proxy in between."""


class BufferFullError(CbwkError):
    """`reports_max` reports wait already."""


class UndeliveredError(CbwkError):
    """`reports` are not delivered, and `voids` late decisions keep their holds until they expire."""

    def __init__(self, reports: Sequence[Report], voids: int, last_failure: str | None) -> None:
        self.reports = tuple(reports)
        self.voids = voids
        reason = f"; the last failure: {last_failure}" if last_failure else ""
        super().__init__(f"{len(self.reports)} reports and {voids} voids were not delivered{reason}")


BY_KIND: Mapping[str, type[RefusedError]] = {
    "campaign-not-found": CampaignNotFoundError,
    "decision-not-found": DecisionNotFoundError,
    "campaign-exists": CampaignExistsError,
    "decision-id-reused": DecisionIdReusedError,
    "feedback-differs": FeedbackDiffersError,
    "version-differs": VersionDiffersError,
    "budget-below-spent": BudgetBelowSpentError,
}
BY_STATUS: Mapping[int, type[RefusedError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    422: InvalidError,
}


def refusal(problem: Any, status: int) -> RefusedError | None:
    """Return the error of a problem document, or None if the document is not one of this service.

    >>> refusal({"type": "urn:cbwk:problem:campaign-exists", "status": 409, "detail": "the id is taken"}, 409)
    CampaignExistsError('409 campaign-exists: the id is taken')
    """
    if not isinstance(problem, Mapping) or not str(problem.get("type", "")).startswith(TYPE_PREFIX):
        return None
    kind = str(problem["type"]).removeprefix(TYPE_PREFIX)
    return BY_KIND.get(kind, BY_STATUS.get(status, RefusedError))(status, problem)
