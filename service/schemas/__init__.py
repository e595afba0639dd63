"""Bodies of the interface as pydantic models: strict for requests, open to more fields for responses."""

from service.schemas import admin, campaign, deciding, evaluations, problem, uplift
from service.schemas.base import Answered, Body

__all__ = ["ANSWERS", "REQUESTS"]

REQUESTS: tuple[type[Body], ...] = (
    admin.AdjustRequest,
    admin.KeyRequest,
    campaign.CampaignConfig,
    campaign.CampaignPatch,
    deciding.DecideBatch,
    deciding.DecideRequest,
    deciding.FeedbackBatch,
    deciding.FeedbackRequest,
    evaluations.EvaluationRequest,
)
ANSWERS: tuple[type[Answered], ...] = (
    admin.Adjusted,
    admin.ArmPage,
    admin.AuditPage,
    admin.BudgetPage,
    admin.BudgetView,
    admin.CampaignChanged,
    admin.DecidedDetail,
    admin.DecidedPage,
    admin.FeedbackHealth,
    admin.KeyHolder,
    admin.KeyMade,
    admin.KeyPage,
    admin.KeyRevoked,
    admin.LedgerPage,
    admin.Liveness,
    admin.ModelChanged,
    admin.Readiness,
    admin.Timeline,
    admin.Verification,
    campaign.CampaignPage,
    campaign.CampaignView,
    deciding.Decision,
    deciding.Decisions,
    deciding.FeedbackResult,
    deciding.FeedbackResults,
    evaluations.EvaluationPage,
    evaluations.EvaluationStarted,
    evaluations.EvaluationView,
    problem.ProblemDocument,
    uplift.UpliftView,
)
