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
    FeedbackHealth,
    KeyHolder,
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
from service.schemas.evaluations import EvaluationPage, EvaluationRequest, EvaluationStarted, EvaluationView
from service.schemas.problem import ProblemDocument
from service.schemas.uplift import UpliftView

__all__ = ["ANSWERS", "REQUESTS"]

REQUESTS: tuple[type[Body], ...] = (
    AdjustRequest,
    CampaignConfig,
    CampaignPatch,
    DecideBatch,
    DecideRequest,
    EvaluationRequest,
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
    EvaluationPage,
    EvaluationStarted,
    EvaluationView,
    FeedbackHealth,
    FeedbackResult,
    FeedbackResults,
    KeyHolder,
    KeyMade,
    KeyPage,
    KeyRevoked,
    LedgerPage,
    Liveness,
    ModelChanged,
    ProblemDocument,
    Readiness,
    Timeline,
    UpliftView,
    Verification,
)
