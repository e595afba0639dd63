"""Reads of the database: functions of a connection of `Database.read()`, which is one snapshot."""

from service.reads.administration import audit, keys
from service.reads.campaigns import budget, budgets, campaign, campaigns
from service.reads.evaluations import evaluation, evaluations
from service.reads.export import FORMATS, Export, export_page, export_start
from service.reads.feedback_health import feedback
from service.reads.gauges import Gauges, PortfolioGauges, gauges, ping
from service.reads.log import decision, decisions, ledger
from service.reads.models import fitting_model
from service.reads.portfolio_verification import verify_portfolio
from service.reads.portfolios import portfolio, portfolio_budget, portfolio_ids, portfolio_ledger, portfolios
from service.reads.selection import ALL, Selection
from service.reads.shared import StoredCampaign
from service.reads.statistics import arms, timeline
from service.reads.uplift import uplift
from service.reads.verification import verify
from service.reads.webhooks import deliveries, webhooks

__all__ = [
    "ALL",
    "FORMATS",
    "Export",
    "Gauges",
    "PortfolioGauges",
    "Selection",
    "StoredCampaign",
    "arms",
    "audit",
    "budget",
    "budgets",
    "campaign",
    "campaigns",
    "decision",
    "decisions",
    "deliveries",
    "evaluation",
    "evaluations",
    "export_page",
    "export_start",
    "feedback",
    "fitting_model",
    "gauges",
    "keys",
    "ledger",
    "ping",
    "portfolio",
    "portfolio_budget",
    "portfolio_ids",
    "portfolio_ledger",
    "portfolios",
    "timeline",
    "uplift",
    "verify",
    "verify_portfolio",
    "webhooks",
]
