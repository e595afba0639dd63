"""A connection that rests is closed, and one whose requests are refused does not rest."""

import asyncio
import socket
from types import SimpleNamespace

import uvicorn
import uvloop

from service.connections import Connection
from service.gate import Gate
from service.metrics import Metrics
from service.server import UVICORN_OPTIONS

REQUEST = b"POST /decide HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
REST_SECONDS = 0.4


class Shut:
    """An application whose gate is shut."""

    def __init__(self):
        engine = SimpleNamespace(queued=1, under_way_max=1, answer=lambda: None)
        self.gate = Gate(SimpleNamespace(engine=engine), ["/decide"], Metrics())
        self.express = SimpleNamespace(under_way=0)

    async def __call__(self, scope, receive, send):
        raise AssertionError("nothing gets here")


async def connected(play):
    options = UVICORN_OPTIONS | {"timeout_keep_alive": REST_SECONDS, "lifespan": "off", "http": Connection}
    server = uvicorn.Server(uvicorn.Config(Shut(), **options))
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
        runner.run(connected(play))
