"""`/dashboard`, `/docs` and their files. They need no key; the data they load does."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from service.assets import ROUTE, address, asset, dashboard_html
from service.pages import page


async def dashboard(request: Request) -> Response:
    """Return the dashboard."""
    return page(dashboard_html())


async def docs(request: Request) -> Response:
    """Return the documentation of the interface."""
    html = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=request.app.title,
        swagger_js_url=address("swagger-ui-bundle.js"),
        swagger_css_url=address("swagger-ui.css"),
        swagger_favicon_url=address("icon.svg"),
        swagger_ui_parameters={"validatorUrl": None},  # else Swagger UI sends the document to a foreign server
    ).body
    return page(bytes(html).decode())


def add_pages(app: FastAPI) -> None:
    """Add the pages to the application but not to the OpenAPI document."""
    app.add_route("/dashboard", dashboard, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)
    app.add_route(ROUTE, asset, include_in_schema=False)
