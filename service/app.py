"""The ASGI application."""

from importlib.metadata import version
from typing import Literal

from fastapi import FastAPI
from pydantic import BaseModel


class Liveness(BaseModel):
    """The answer of a process that can still answer."""

    status: Literal["ok"] = "ok"


async def livez() -> Liveness:
    """Tell that the process answers; says nothing of what it depends on."""
    return Liveness()


def create_app() -> FastAPI:
    """Make an application of its own: two of them in one process share nothing."""
    app = FastAPI(title="cbwk", version=version("cbwk"), redoc_url=None)
    app.get("/livez", tags=["health"])(livez)
    return app
