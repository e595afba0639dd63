"""A real service for the examples in the docstrings of the client, which speak to `url` with `key`."""

import pytest

from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import running_server

EXAMPLES_OF = "cbwk_client"
NEEDED_BY = "(url, key)"


@pytest.fixture(scope="session")
def served_url():
    with running_server() as server:
        yield server.url


@pytest.fixture(autouse=True)
def service_of_examples(request):
    if not isinstance(request.node, pytest.DoctestItem) or not request.node.name.startswith(EXAMPLES_OF):
        return
    if any(NEEDED_BY in example.source for example in request.node.dtest.examples):
        names = {"url": request.getfixturevalue("served_url"), "key": ADMIN_KEY}
        request.getfixturevalue("doctest_namespace").update(names)
