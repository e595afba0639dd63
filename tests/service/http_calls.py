"""Calls to real servers: one at a time, thousands in a row, or all at once on separate connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import RunningServer

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
ANSWER_SECONDS_MAX = 60.0


class Reply(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def replayed(self) -> bool:
        """Whether the server marks it as the repetition of an earlier answer."""
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def json(self) -> Any:
        """The decoded body."""
        return json.loads(self.body)


def campaign(name: str = "c", *, budget: float = 1000, horizon: int = 1000, **changes: Any) -> dict[str, Any]:
    """Return a campaign with two arms that cost up to 1 usd, a context of two numbers and an ample budget."""
    return {
        "id": name,
        "arms": [{"id": "a"}, {"id": "b"}],
        "resources": [{"id": "usd", "budget": budget, "max_cost": 1}],
        "horizon": horizon,
        "context": {"dimension": 2},
        "seed": 7,
    } | changes


def decide_body(decision_id: str, name: str = "c", context: Sequence[float] = (0.3, 0.6)) -> dict[str, Any]:
    """Return the body of a request for a decision."""
    return {"campaign_id": name, "decision_id": decision_id, "context": list(context)}


def calls(server: RunningServer) -> httpx.Client:
    """Return a client with the admin's key."""
    return httpx.Client(base_url=server.url, headers=HEADERS, trust_env=False, timeout=ANSWER_SECONDS_MAX)


class Connection:
    """One persistent connection, which is much cheaper than a client for thousands of requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, path: str, body: Any) -> Reply:
        """Send a body and return the answer; raises ConnectionError or EOFError if the server has gone away."""
        self._writer.write(_post(path, json.dumps(body).encode(), "keep-alive"))
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            status, headers = _head((await self._reader.readuntil(b"\r\n\r\n"))[:-4])
            return Reply(status, headers, await self._reader.readexactly(int(headers["content-length"])))


@asynccontextmanager
async def connected(server: RunningServer, connections: int) -> AsyncIterator[list[Connection]]:
    """Open connections to a server and close them afterwards."""
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(connections)]
    try:
        yield [Connection(reader, writer) for reader, writer in opened]
    finally:
        for _, writer in opened:
            writer.close()


def good(answer: httpx.Response, status: int = 200) -> Any:
    """Return the decoded body of an answer with the given status."""
    assert answer.status_code == status, answer.text
    return answer.json()


def create(client: httpx.Client, body: dict[str, Any]) -> None:
    """Create a campaign."""
    good(client.post("/campaigns", json=body), 201)


def failed_checks(client: httpx.Client, name: str = "c") -> list[Any]:
    """Return the checks of `verify` that fail."""
    answer = client.get(f"/admin/campaigns/{name}/verify").json()
    assert answer["checks"], "verify has checked nothing"
    failed = [check for check in answer["checks"] if not check["ok"]]
    assert answer["ok"] == (not failed)
    return failed


def account(client: httpx.Client, name: str = "c") -> dict[str, Any]:
    """Return the first account of a campaign."""
    first: dict[str, Any] = client.get(f"/admin/campaigns/{name}/budget").json()["resources"][0]
    return first


async def at_once(servers: Sequence[RunningServer], path: str, bodies: Sequence[Any]) -> list[Reply]:
    """POST each body on its own connection, to the servers in turn; every body is sent before any answer is read."""
    opened = await asyncio.gather(
        *(asyncio.open_connection("127.0.0.1", servers[i % len(servers)].port) for i in range(len(bodies)))
    )
    for (_, writer), body in zip(opened, bodies, strict=True):
        writer.write(_post(path, json.dumps(body).encode(), "close"))
    return await asyncio.gather(*(_reply(reader, writer) for reader, writer in opened))


def _post(path: str, body: bytes, connection: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: {HEADERS['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
    )
    return head.encode() + body


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode().split("\r\n")
    assert first.startswith("HTTP/1.1 "), f"no answer but {first!r}"
    return int(first.split()[1]), {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }


async def _reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Reply:
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, headers = _head(head)
    assert len(body) == int(headers["content-length"]), "the answer was cut off"
    return Reply(status, headers, body)
