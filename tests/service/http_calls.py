"""Calls to real servers: one at a time, a few at a time, or all at once on connections of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from tests.service.http_client import ADMIN_KEY
from tests.service.server_process import RunningServer

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
ANSWER_SECONDS_MAX = 60.0


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


def campaign(name: str = "c", *, budget: float = 1000, horizon: int = 100_000, **changes: Any) -> dict[str, Any]:
    """Two arms that cost up to 1 usd, two numbers of context."""
    return {
        "id": name,
        "arms": [{"id": "a"}, {"id": "b"}],
        "resources": [{"id": "usd", "budget": budget, "max_cost": 1}],
        "horizon": horizon,
        "context": {"dimension": 2},
        "seed": 7,
    } | changes


def decide_body(decision_id: str, name: str = "c", context: Sequence[float] = (0.3, 0.6)) -> dict[str, Any]:
    """A request for an arm."""
    return {"campaign_id": name, "decision_id": decision_id, "context": list(context)}


def calls(server: RunningServer) -> httpx.Client:
    """A client with the admin's key."""
    return httpx.Client(base_url=server.url, headers=HEADERS, trust_env=False, timeout=ANSWER_SECONDS_MAX)


def async_calls(server: RunningServer) -> httpx.AsyncClient:
    """The same for many requests at a time."""
    return httpx.AsyncClient(base_url=server.url, headers=HEADERS, trust_env=False, timeout=ANSWER_SECONDS_MAX)


def create(client: httpx.Client, body: dict[str, Any]) -> None:
    """Make a campaign."""
    answer = client.post("/campaigns", json=body)
    assert answer.status_code == 201, answer.text


def failed_checks(client: httpx.Client, name: str = "c") -> list[Any]:
    """What `verify` finds wrong."""
    answer = client.get(f"/admin/campaigns/{name}/verify").json()
    assert answer["checks"], "a verification that checks nothing says nothing"
    failed = [check for check in answer["checks"] if not check["ok"]]
    assert answer["ok"] == (not failed)
    return failed


def account(client: httpx.Client, name: str = "c") -> dict[str, Any]:
    """The first account of a campaign."""
    first: dict[str, Any] = client.get(f"/admin/campaigns/{name}/budget").json()["resources"][0]
    return first


async def at_once(servers: Sequence[RunningServer], path: str, bodies: Sequence[Any]) -> list[Reply]:
    """POST every body on a connection of its own, to the servers in turn; all are sent before any answer is read."""
    opened = await asyncio.gather(
        *(asyncio.open_connection("127.0.0.1", servers[i % len(servers)].port) for i in range(len(bodies)))
    )
    for (_, writer), body in zip(opened, bodies, strict=True):
        writer.write(_post(path, json.dumps(body).encode()))
    return await asyncio.gather(*(_reply(reader, writer) for reader, writer in opened))


def _post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: {HEADERS['Authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def _reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Reply:
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    assert first.startswith("HTTP/1.1 "), f"no answer but {first!r}"
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert len(body) == int(headers["content-length"]), "the answer was cut off"
    return Reply(int(first.split()[1]), headers, body)
