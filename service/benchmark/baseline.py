"""The baseline of the benchmark: a FastAPI handler that validates the same body and returns a constant."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from service import server

Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$")]


class Request(BaseModel):
    """The body of `POST /decide`."""

    model_config = ConfigDict(extra="forbid")

    campaign_id: Id
    decision_id: Id | None = None
    context: dict[str, float | str]
    exclude: list[Id] = []
    explain: bool = False


class Decision(BaseModel):
    """A response body of the shape of a decision."""

    decision_id: str
    campaign_id: str
    arm: str | None
    reason: str
    probability: float
    hold: dict[str, float]
    expires_at: str
    round: int
    policy_version: int


app = FastAPI()


@app.post("/decide")
async def decide(request: Request) -> Decision:
    """Returns a constant decision."""
    return Decision(
        decision_id="0197f0c4-8a00-7000-8000-5d1c2f0b9e11",
        campaign_id=request.campaign_id,
        arm="arm-3",
        reason="policy",
        probability=0.83,
        hold={"usd": 0.05, "impressions": 1, "sends": 2},
        expires_at="2026-11-16T10:00:00Z",
        round=1042,
        policy_version=977,
    )


@app.get("/readyz")
async def readyz() -> dict[str, Any]:
    """Is always ready."""
    return {}


def main() -> None:
    """Serves on the given port with the options of the service."""
    listener = server.listen("127.0.0.1", int(sys.argv[1]))
    uvicorn.Server(uvicorn.Config(app, **server.UVICORN_OPTIONS)).run(sockets=[listener])


if __name__ == "__main__":
    main()
