"""A connection that rests is closed, and one whose requests are answered does not rest."""

import asyncio
import socket
from math import inf
from types import SimpleNamespace

import uvicorn
import uvloop

from service.app import create_app
from service.auth import KeyRing
from service.engine.commands import Answer, Item
from service.hot.endpoints import HOT_ROUTES
from service.hot.exchange import HotPath
from service.hot.protocol import Connection
from service.hot.refusal import Refusals
from service.metrics import Metrics
from service.server import UVICORN_OPTIONS
from service.settings import Settings
from tests.service.http_client import ADMIN_KEY

REQUEST = b"POST /decide HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
BODY = b'{"campaign_id": "c", "context": [1]}'
DECIDE = (
    f"POST /decide HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nContent-Length: {len(BODY)}\r\n\r\n"
).encode() + BODY
REST_SECONDS = 0.4


class Shut:
    """An application whose queue is full."""

    def __init__(self):
        self.refusals = Refusals(["/decide"], Metrics())
        full = SimpleNamespace(is_full=lambda under_way: True)
        self.hot_path = HotPath(SimpleNamespace(engine=full), HOT_ROUTES, Metrics(), lambda path: len(REQUEST))

    async def __call__(self, scope, receive, send):
        raise AssertionError("nothing gets here")


class Answering:
    """An engine that answers every request, each in its own time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def is_full(self, under_way):
        return False

    def enqueue(self, commands, deliver):
        items = [Item(command, inf, answer=Answer({})) for command in commands]
        asyncio.get_running_loop().call_later(self.seconds.pop(0), deliver, items)
        return SimpleNamespace(gone=False)


async def connected(play, app):
    options = UVICORN_OPTIONS | {"timeout_keep_alive": REST_SECONDS, "lifespan": "off", "http": Connection}
    server = uvicorn.Server(uvicorn.Config(app, **options))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        await asyncio.wait_for(play(reader, writer), 10)
    finally:
        writer.close()
        server.should_exit = True
        await serving


def test_refusals_keep_a_connection_open_and_a_rest_closes_it():
    async def play(reader, writer):
        for _ in range(6):
            writer.write(REQUEST)
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 503 ")
            await asyncio.sleep(REST_SECONDS / 3)
        assert await reader.read(65536) == b""

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connected(play, Shut()))


def test_answers_keep_a_connection_open_and_a_rest_closes_it():
    slow = Answering(seconds=[0, 0, 0, REST_SECONDS / 3, 2.5 * REST_SECONDS, 0])

    async def play(reader, writer):
        for number in range(6):
            writer.write(DECIDE)
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 "), number
            await asyncio.sleep(REST_SECONDS / 3)
        assert await reader.read(65536) == b""

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            connected(
                play, create_app(Settings(request_deadline_ms=60_000), engine=slow, keyring=KeyRing(None, ADMIN_KEY))
            )
        )
    assert not slow.seconds


class Listening:
    """An application that answers nothing and waits until its client is gone."""

    gone = 0

    async def __call__(self, scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone += 1


def test_a_request_under_way_learns_that_its_client_is_gone_although_another_waits_behind_it():
    app = Listening()

    async def play(reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 2)
        await asyncio.sleep(0.2)
        writer.close()
        while not app.gone:
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connected(play, app))
    assert app.gone == 1
