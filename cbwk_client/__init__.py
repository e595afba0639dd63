"""Clients of the service: `Client` for threads, `AsyncClient` for asyncio. They need httpx and nothing of the server.

Both answer `decide` within 100 ms or play a fallback, void decisions that came too late, and keep reports until the
service accepts them.
"""

from cbwk_client.answers import (
    Account,
    Adjusted,
    ArmThought,
    Budget,
    Campaign,
    CampaignSummary,
    CampaignVersion,
    Check,
    Decision,
    Explanation,
    FeedbackResult,
    NewKey,
    Portfolio,
    PortfolioBudget,
    SharedAccount,
    Verification,
    Window,
)
from cbwk_client.asynchronous import AsyncClient
from cbwk_client.calls import Ask
from cbwk_client.errors import (
    BadRequestError,
    BudgetBelowSpentError,
    BufferFullError,
    CampaignExistsError,
    CampaignNotFoundError,
    CbwkError,
    ConflictError,
    DecisionIdReusedError,
    DecisionNotFoundError,
    FeedbackDiffersError,
    ForbiddenError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    RefusedError,
    TimedOutError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UndeliveredError,
    UnexpectedAnswerError,
    UnreachableError,
    VersionDiffersError,
)
from cbwk_client.reports import Report
from cbwk_client.sync import Client
from cbwk_client.terms import Terms

# fmt: off
__all__ = [
    "Account", "Adjusted", "ArmThought", "Ask", "AsyncClient", "BadRequestError", "Budget", "BudgetBelowSpentError",
    "BufferFullError", "Campaign", "CampaignExistsError", "CampaignNotFoundError", "CampaignSummary",
    "CampaignVersion", "CbwkError", "Check", "Client", "ConflictError", "Decision", "DecisionIdReusedError",
    "DecisionNotFoundError", "Explanation", "FeedbackDiffersError", "FeedbackResult", "ForbiddenError", "InvalidError",
    "NewKey", "NoAnswerError", "NotFoundError", "Portfolio", "PortfolioBudget", "RefusedError", "Report",
    "SharedAccount", "Terms", "TimedOutError", "TooLargeError", "TooManyRequestsError", "UnauthorizedError",
    "UnavailableError", "UndeliveredError", "UnexpectedAnswerError", "UnreachableError", "Verification",
    "VersionDiffersError", "Window",
]
# fmt: on
