"""`/dashboard`, `/docs` and their files. They need no key; the data they load does.

A content security policy allows these pages only what they need.
"""

import re
from base64 import b64encode
from hashlib import sha256
from html import escape

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from service.assets import ROUTE, address, asset, dashboard_html
from service.meanings import MEANINGS
from service.problems import HELP_PATH

_CODE, _LINK = re.compile(r"`([^`]*)`"), re.compile(r"\[([^]]*)\]\([^)]*\)")
_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


async def dashboard(request: Request) -> Response:
    """Return the dashboard."""
    return _page(dashboard_html())


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
    return _page(bytes(html).decode())


async def problems(request: Request) -> Response:
    """Return what each kind of problem means and what to do."""
    entries = (
        f'<h2 id="{kind}"><code>{kind}</code></h2><p>{_html(meaning)}</p><p>To do: {_html(remedy)}</p>'
        for kind, (meaning, remedy) in MEANINGS.items()
    )
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>cbwk: problems</title></head>'
    return _page(f"{head}<body><main><h1>Problems</h1>{''.join(entries)}</main></body></html>")


def _html(markdown: str) -> str:
    """Returns a line of Markdown as HTML: code stays code, a link is its text.

    >>> _html("see `a<b`, [there](x.md)")
    'see <code>a&lt;b</code>, there'
    """
    return _CODE.sub(r"<code>\1</code>", _LINK.sub(r"\1", escape(markdown, quote=False)))


async def openapi_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(request.app.openapi_bytes, media_type="application/json")


async def home(request: Request) -> Response:
    """Lead to the dashboard; the address is relative, as those of all pages."""
    return RedirectResponse("dashboard")


async def favicon(request: Request) -> Response:
    """Lead to the icon, for browsers that ask for it without being told where it is."""
    return RedirectResponse(address("icon.svg"))


def add_pages(app: FastAPI) -> None:
    """Add the pages to the application but not to the OpenAPI document."""
    app.add_route("/", home, include_in_schema=False)
    app.add_route("/favicon.ico", favicon, include_in_schema=False)
    app.add_route("/dashboard", dashboard, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)
    app.add_route(HELP_PATH, problems, include_in_schema=False)
    app.add_route("/openapi.json", openapi_document, include_in_schema=False)
    app.add_route(ROUTE, asset, include_in_schema=False)


def _page(html: str) -> HTMLResponse:
    """Returns a response that runs only its own scripts and cannot be framed by other pages."""
    headers = {
        "Content-Security-Policy": policy_of(html),
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
    }
    return HTMLResponse(html, headers=headers)


def policy_of(html: str) -> str:
    """Returns the content security policy of a page: our own files, and its inline scripts by their digests.

    >>> policy_of("<script>1</script>").split("; ")[1]
    "script-src 'self' 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='"
    """
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in _INLINE_SCRIPT.findall(html)]
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
