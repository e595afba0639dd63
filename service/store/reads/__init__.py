"""Everything that is read and not written: functions of a connection of `Database.read()`, one snapshot each."""

from service.store.reads.administration import audit, keys
from service.store.reads.awaited import feedback
from service.store.reads.campaigns import budget, budgets, campaign, campaigns
from service.store.reads.evaluations import evaluation, evaluations
from service.store.reads.export import FORMATS, Export, export_page, export_start
from service.store.reads.gauges import Gauges, gauges, ping
from service.store.reads.log import decision, decisions, ledger
from service.store.reads.models import ExportedModel, fitting_model, model
from service.store.reads.shared import Seen
from service.store.reads.statistics import arms, timeline
from service.store.reads.uplift import uplift
from service.store.reads.verification import verify

__all__ = [
    "FORMATS",
    "Export",
    "ExportedModel",
    "Gauges",
    "Seen",
    "arms",
    "audit",
    "budget",
    "budgets",
    "campaign",
    "campaigns",
    "decision",
    "decisions",
    "evaluation",
    "evaluations",
    "export_page",
    "export_start",
    "feedback",
    "fitting_model",
    "gauges",
    "keys",
    "ledger",
    "model",
    "ping",
    "timeline",
    "uplift",
    "verify",
]
