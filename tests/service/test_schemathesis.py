"""Requests made up from the OpenAPI document: each is answered as the document says, and never with a 5xx."""

import os
import shutil
from collections import defaultdict
from itertools import count
from typing import ClassVar
from zlib import crc32

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.openapi import LINKS
from service.schemas.campaign import CONFIG_EXAMPLE
from service.store.database import Database
from tests.service.http_calls import HEADERS, calls, create
from tests.service.http_client import ADMIN_KEY, served
from tests.service.server_process import running_server

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES_MAX = 15
SCENARIOS_MAX, STEPS_MAX = 15, 15
# Operations that links must have led to with success, or the scenarios say little.
FOLLOWED_MIN = 5
# CBWK_TEST_EXAMPLES=200 looks longer and elsewhere every time.
LONG = "CBWK_TEST_EXAMPLES" in os.environ
CAMPAIGN, DECISION = CONFIG_EXAMPLE["id"], "checkout-7f3a"
CONTEXT = {"device": "mobile", "hour": 13, "site": "news.example"}
# Bodies that are taken, to change one field of.
GOOD = {
    "/campaigns": {name: value for name, value in CONFIG_EXAMPLE.items() if name != "id"},
    "/campaigns/{campaign_id}": {"horizon": 5000},
    "/decide": {"campaign_id": CAMPAIGN, "context": CONTEXT},
    "/decide/batch": {"campaign_id": CAMPAIGN, "items": [{"context": CONTEXT}]},
    "/feedback": {"campaign_id": CAMPAIGN, "decision_id": DECISION, "reward": 1, "costs": {"usd": 0.01}},
    "/feedback/batch": {"items": []},
    "/admin/campaigns/{campaign_id}/adjust": {"resource": "usd", "amount": 0.5, "reason": "billed twice"},
    "/admin/campaigns/{campaign_id}/evaluations": {"candidates": [{"type": "uniform"}]},
    "/admin/keys": {"name": "n", "role": "reader"},
    "/admin/webhooks": {"url": "https://1.1.1.1/", "events": ["campaign.ended"]},
    "/portfolios": {"resources": [{"id": "usd", "budget": 5}]},
    "/portfolios/{portfolio_id}": {"resources": [{"id": "usd", "budget": 7}]},
}

schema = schemathesis.openapi.from_dict(create_app().openapi())
schema.config.phases.coverage.enabled = LONG  # a case for every limit of every field takes a minute
schema.config.phases.stateful.inference.algorithms = []  # the document's links and no others
schema.config.phases.stateful.link_calibration = False  # a scenario goes the same way every time


@pytest.fixture
def client(sqlite_template, tmp_path):
    shutil.copyfile(sqlite_template, tmp_path / "cbwk.db")
    with Database.open(f"sqlite:///{tmp_path}/cbwk.db") as database, served(database) as client:
        assert client("POST", "/campaigns", json=CONFIG_EXAMPLE).status_code == 201
        body = {"campaign_id": CAMPAIGN, "decision_id": DECISION, "context": CONTEXT}
        assert client("POST", "/decide", json=body).status_code == 200
        yield client


def aim(case, campaign=CAMPAIGN):
    """Let three cases of four be about what is there, one field of the body apart from a good one; at random alone,
    nearly all would end at an unknown id or at the first wrong field."""
    chance = crc32(repr((case.path_parameters, case.body)).encode("utf-8", "surrogatepass"))
    if chance % 4 == 0:
        return
    present = {"campaign_id": campaign, "decision_id": DECISION}
    case.path_parameters = {name: present.get(name, value) for name, value in (case.path_parameters or {}).items()}
    if isinstance(case.body, dict) and case.body:
        names = sorted(case.body)
        name = names[chance // 4 % len(names)]
        fresh = {"id": f"c{chance}"} if case.path in ("/campaigns", "/portfolios") else {}
        good = GOOD[case.path]
        case.body = good | ({"campaign_id": campaign} if "campaign_id" in good else fresh) | {name: case.body[name]}


@schema.parametrize()
@settings(
    max_examples=int(os.environ.get("CBWK_TEST_EXAMPLES", EXAMPLES_MAX)),
    deadline=None,
    derandomize=not LONG,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_its_document_says(case, client):
    aim(case)
    case.headers = {**(case.headers or {}), "Authorization": f"Bearer {ADMIN_KEY}"}
    sent = requests.Request(**case.as_transport_kwargs(base_url="http://test")).prepare()
    answer = client(sent.method, sent.url, key=None, headers=dict(sent.headers), content=sent.body)
    case.validate_response(answer, checks=CHECKS)


IDS = ("id", "campaign_id", "decision_id")
# The life of a decision; a longer look goes along all links there are.
LIFE = ["create_campaign", "show_campaign", "pause_campaign", "resume_campaign", "decide", "decide_batch", "feedback"]
LIFE += ["show_decision", "verify_campaign"]
EVERYTHING = [*LINKS, *(following for links in LINKS.values() for following in links)]
linked = schema.include(operation_id=EVERYTHING if LONG else LIFE)


class Scenario(linked.as_state_machine()):
    """Calls that follow the links of the document, with what the answers before them said.

    Whatever is made has a name of its own, or a scenario would go otherwise the second time.
    """

    client: ClassVar = None
    numbers: ClassVar = count()
    answered: ClassVar = defaultdict(set)  # the statuses of every operation that a link led to

    def setup(self):
        self.campaign = f"s{next(self.numbers)}"
        create(self.client, {**CONFIG_EXAMPLE, "id": self.campaign})

    def get_call_kwargs(self, case):
        return {"base_url": str(self.client.base_url), "headers": HEADERS}

    def step(self, input):
        """Keep what the link gave, and let most of the rest be good."""
        case, linked = input.case, input.transition is not None
        path, given = case.path_parameters, {}
        if linked:
            case.path_parameters = {}  # what is aimed at must not depend on names that are new every time
        if isinstance(case.body, dict):
            given = {name: case.body[name] for name in IDS if linked and name in case.body}
            case.body = {name: value for name, value in case.body.items() if name not in IDS}
        aim(case, self.campaign)
        if linked:
            case.path_parameters = path
        if isinstance(case.body, dict):
            fresh = {"id": f"c{next(self.numbers)}"} if case.path in ("/campaigns", "/portfolios") else {}
            case.body = case.body | given | fresh
        output = super().step(input)
        if linked:
            self.answered[case.operation.definition.raw["operationId"]].add(output.response.status_code)
        return output

    def validate_response(self, response, case, **named):
        case.validate_response(response, checks=CHECKS)


def test_scenarios_along_the_links_are_answered_as_the_document_says():
    with running_server(database_url="sqlite:///cbwk.db") as server, calls(server) as client:
        Scenario.client = client
        Scenario.run(
            settings=settings(
                max_examples=int(os.environ.get("CBWK_TEST_EXAMPLES", SCENARIOS_MAX)),
                stateful_step_count=STEPS_MAX,
                deadline=None,
                derandomize=not LONG,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
        )
    good = {name for name, statuses in Scenario.answered.items() if statuses & {200, 201, 202}}
    assert len(good) > FOLLOWED_MIN, Scenario.answered
    # Which links are followed is Hypothesis' choice; that it follows many, and one to a decision's fate, is not.
    assert {"decide", "feedback"} & Scenario.answered.keys(), Scenario.answered
