"""What the service uses of uvicorn's internals. A new minor version is taken when these tests pass with it.

`Connection` extends uvicorn's protocol, `Exchange` stands for its cycle, and the server reads its state.
"""

import ast
import inspect
import tomllib

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service import server
from service.hot import bounds, exchange, protocol
from service.hot.bounds import BoundedConnection
from service.hot.exchange import Exchange
from service.hot.protocol import Connection
from service.server import UVICORN_OPTIONS
from tests.documents import ROOT

# Attributes of a connection, and methods that `Connection` calls or overrides.
ATTRIBUTES = {
    "access_log", "access_logger", "config", "connections", "cycle", "flow", "headers", "logger", "loop", "parser",
    "pipeline", "server_state", "tasks", "timeout_keep_alive", "timeout_keep_alive_task", "transport", "url",
}  # fmt: skip
METHODS = {
    "_start_asgi_task": ["self", "cycle", "app"],
    "_unset_keepalive_if_required": ["self"],
    "connection_lost": ["self", "exc"],
    "connection_made": ["self", "transport"],
    "data_received": ["self", "data"],
    "on_body": ["self", "body"],
    "on_header": ["self", "name", "value"],
    "on_headers_complete": ["self"],
    "on_message_begin": ["self"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "resume_writing": ["self"],
    "timeout_keep_alive_handler": ["self"],
}
STATE = {"connections", "default_headers", "total_requests"}
SERVER = {"run", "server_state", "should_exit"}
FLOW = {"resume_reading", "write_paused"}
# What uvicorn's protocol reads or sets of the cycle of its connection.
CYCLE = {"body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "run_asgi"}


def made():
    """A connection of uvicorn's own, with one message begun."""

    async def app(scope, receive, send):
        raise AssertionError("never called")

    config = uvicorn.Config(app, **{**UVICORN_OPTIONS, "http": HttpToolsProtocol})
    connection = HttpToolsProtocol(config, ServerState(), {}, _loop=object())
    connection.on_message_begin()
    return connection


def names_of(module, *owners):
    """The attributes that a module uses of the expressions `owners`."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in owners:
            found.add(node.attr)
    return found


def test_the_minor_version_is_pinned_and_is_the_one_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pinned,) = [one for one in map(Requirement, project["optional-dependencies"]["server"]) if one.name == "uvicorn"]
    major, minor = map(int, uvicorn.__version__.split(".")[:2])
    assert {str(one) for one in pinned.specifier} == {f">={major}.{minor}", f"<{major}.{minor + 1}"}


def test_everything_that_is_used_of_a_connection_is_there():
    connection = made()
    assert {name for name in ATTRIBUTES if not hasattr(connection, name)} == set()
    for name, parameters in METHODS.items():
        assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters) == parameters, name


def test_nothing_else_of_a_connection_is_used():
    ours = {**vars(BoundedConnection), **vars(Connection)}
    own = {name for name in ours if name not in METHODS} | {"_refusals", "_hot_path"}
    own |= {*BoundedConnection.__annotations__, *Connection.__annotations__}
    used = names_of(protocol, "self", "super()") | names_of(bounds, "self", "super()")
    used |= names_of(exchange, "connection")
    ours_elsewhere = {"message_event", "_uncounted"}  # of _Refused and WaitingBytes
    assert used - own - ours_elsewhere <= ATTRIBUTES | METHODS.keys()
    overridden = {name for name in ours if hasattr(HttpToolsProtocol, name) and not name.startswith("__")}
    assert overridden <= METHODS.keys()


@pytest.mark.parametrize(
    ("instance", "names", "used"),
    [
        (ServerState(), STATE, names_of(protocol, "self.server_state") | names_of(server, "server.server_state")),
        (uvicorn.Server(uvicorn.Config("unused:app", log_config=None)), SERVER, names_of(server, "server")),
        (FlowControl(None), FLOW, names_of(protocol, "self.flow")),
    ],
    ids=["state", "server", "flow"],
)
def test_what_is_used_of_the_state_the_server_and_the_flow_is_there(instance, names, used):
    assert used == names
    assert {name for name in names if not hasattr(instance, name)} == set()


def test_an_exchange_has_what_uvicorn_uses_of_a_cycle():
    source = inspect.getsource(HttpToolsProtocol)
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self.cycle", "cycle", "existing_cycle")
    }
    assert used == CYCLE
    # A cycle gets a body and a task only from uvicorn's own methods, which are not called while an exchange is open.
    assert {name for name in CYCLE - {"body", "more_body", "run_asgi"} if not hasattr(Exchange, name)} == set()
    assert inspect.iscoroutinefunction(RequestResponseCycle.run_asgi)


def test_everything_that_bounds_use_of_a_cycle_is_there():
    made_with = {"self", "scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"}
    made_with |= {"message_event", "expect_100_continue", "keep_alive", "on_response"}
    assert inspect.signature(RequestResponseCycle.__init__).parameters.keys() == made_with
    nothing = dict.fromkeys(made_with - {"self"})
    cycle = RequestResponseCycle(**nothing)
    used = names_of(bounds, "cycle", "self._running", "earlier")
    assert used == {"body", "disconnected", "message_event", "response_complete", "response_started", "scope"}
    assert {name for name in used if not hasattr(cycle, name)} == set()


def test_the_options_are_options():
    assert UVICORN_OPTIONS.keys() <= inspect.signature(uvicorn.Config).parameters.keys()
