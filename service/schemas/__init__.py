"""Every body of the interface, as pydantic models: strict where requests are read, open where answers are shown."""

from service.schemas.admin import (
    Adjusted,
    AdjustRequest,
    ArmPage,
    AuditPage,
    BudgetPage,
    BudgetView,
    CampaignChanged,
    DecidedDetail,
    DecidedPage,
    KeyMade,
    KeyPage,
    KeyRequest,
    KeyRevoked,
    LedgerPage,
    Liveness,
    ModelChanged,
    Readiness,
    Timeline,
    Verification,
)
from service.schemas.base import Answered, Body
from service.schemas.campaign import CampaignConfig, CampaignPage, CampaignPatch, CampaignView
from service.schemas.deciding import (
    DecideBatch,
    DecideRequest,
    Decision,
    Decisions,
    FeedbackBatch,
    FeedbackRequest,
    FeedbackResult,
    FeedbackResults,
)
from service.schemas.problem import ProblemDocument

__all__ = ["ANSWERS", "REQUESTS"]

REQUESTS: tuple[type[Body], ...] = (
    AdjustRequest,
    CampaignConfig,
    CampaignPatch,
    DecideBatch,
    DecideRequest,
    FeedbackBatch,
    FeedbackRequest,
    KeyRequest,
)
ANSWERS: tuple[type[Answered], ...] = (
    Adjusted,
    ArmPage,
    AuditPage,
    BudgetPage,
    BudgetView,
    CampaignChanged,
    CampaignPage,
    CampaignView,
    DecidedDetail,
    DecidedPage,
    Decision,
    Decisions,
    FeedbackResult,
    FeedbackResults,
    KeyMade,
    KeyPage,
    KeyRevoked,
    LedgerPage,
    Liveness,
    ModelChanged,
    ProblemDocument,
    Readiness,
    Timeline,
    Verification,
)
