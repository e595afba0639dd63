"""What a call can end with instead of an answer.

CbwkError
├── NoAnswerError                nothing usable came in time; the same request may be sent again
│   ├── UnreachableError         refused, reset, broken off
│   ├── TimedOutError            the time given was up
│   └── UnavailableError         503 and other answers of a service that cannot serve now
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
│   └── InvalidError 422         `fields` says which and why
├── UnexpectedAnswerError        what answers there is not this service
├── BufferFullError              more reports wait than may
└── UndeliveredError             reports left over at the end
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.problems import TYPE_PREFIX

if TYPE_CHECKING:
    from service.client.outbox import Report


class CbwkError(Exception):
    """Everything this client raises about the service."""


class NoAnswerError(CbwkError):
    """No answer that says anything; `may_have_been_done` unless the request surely never got there."""

    def __init__(self, detail: str, *, may_have_been_done: bool, retry_after_seconds: float = 0.0) -> None:
        super().__init__(detail)
        self.may_have_been_done = may_have_been_done
        self.retry_after_seconds = retry_after_seconds


class UnreachableError(NoAnswerError):
    """No connection, or one that broke."""


class TimedOutError(NoAnswerError):
    """The time given was up."""


class UnavailableError(NoAnswerError):
    """The service, or something before it, says that it cannot serve now."""


class RefusedError(CbwkError):
    """The service's answer is a problem; `kind` is the last part of its type."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.kind = str(problem["type"]).removeprefix(TYPE_PREFIX)
        self.fields: dict[str, str] = {
            str(error["field"]): str(error["message"]) for error in problem.get("errors", ())
        }
        said = "; ".join([str(problem.get("detail", "")), *(f"{name}: {why}" for name, why in self.fields.items())])
        super().__init__(f"{status} {self.kind}: {said}")


class BadRequestError(RefusedError):
    """The body cannot be read."""


class UnauthorizedError(RefusedError):
    """No valid key."""


class ForbiddenError(RefusedError):
    """The key does not allow this."""


class NotFoundError(RefusedError):
    """What was named is not there."""


class CampaignNotFoundError(NotFoundError):
    """No such campaign, or none that the key may see."""


class DecisionNotFoundError(NotFoundError):
    """No such decision in this campaign."""


class ConflictError(RefusedError):
    """It contradicts what is there."""


class CampaignExistsError(ConflictError):
    """The id is taken."""


class DecisionIdReusedError(ConflictError):
    """The decision id was used with another context."""


class FeedbackDiffersError(ConflictError):
    """Another value was reported before; `adjust` corrects."""


class VersionDiffersError(ConflictError):
    """Somebody else changed the campaign meanwhile."""


class BudgetBelowSpentError(ConflictError):
    """The new budget is below what is spent and held."""


class TooLargeError(RefusedError):
    """The body is over the service's limit."""


class InvalidError(RefusedError):
    """A field has a value it cannot have."""


class UnexpectedAnswerError(CbwkError):
    """Neither an answer nor a problem of this service: a wrong address, or a proxy in between."""


class BufferFullError(CbwkError):
    """The service has not taken reports for so long that no more can be kept."""


class UndeliveredError(CbwkError):
    """The end came first: `reports` were not taken, `voids` holds of late decisions stay until they expire."""

    def __init__(self, reports: Sequence[Report], voids: int, last_failure: str | None) -> None:
        self.reports = tuple(reports)
        self.voids = voids
        why = f"; the last failure: {last_failure}" if last_failure else ""
        super().__init__(f"{len(self.reports)} reports and {voids} voids were not delivered{why}")


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
    """The error of a problem document; None if it is none of ours.

    >>> refusal({"type": "urn:cbwk:problem:campaign-exists", "status": 409, "detail": "the id is taken"}, 409)
    CampaignExistsError('409 campaign-exists: the id is taken')
    """
    if not isinstance(problem, Mapping) or not str(problem.get("type", "")).startswith(TYPE_PREFIX):
        return None
    kind = str(problem["type"]).removeprefix(TYPE_PREFIX)
    return BY_KIND.get(kind, BY_STATUS.get(status, RefusedError))(status, problem)
