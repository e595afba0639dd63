"""Files that our pages load: the dashboard's own, and scripts of two packages that we serve instead of a CDN.

Their path contains a digest of their contents, so browsers may cache them forever. The packages are never imported:
importing plotly would take longer than the rest of the start.
"""

import gzip
import re
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from string import Template
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from service.problems import NotFound

ASSETS = "assets"
ROUTE = f"/{ASSETS}/{{digest}}/{{name}}"
_OWN = Path(__file__).parent / "dashboard"
_PAGE = "page.html"
# Distribution, package and path of third-party files.
_THIRD_PARTY = {
    "plotly.min.js": ("plotly", "plotly", "package_data/plotly.min.js"),
    "swagger-ui-bundle.js": ("fastapi-swagger", "fastapi_swagger", "resources/swagger-ui-bundle.js"),
    "swagger-ui.css": ("fastapi-swagger", "fastapi_swagger", "resources/swagger-ui.css"),
}
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_ACCEPTS_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0+)?\s*(,|$))")
_READING = Lock()
# A year, the customary "forever".
_CACHE_FOREVER = "public, max-age=31536000, immutable"


def address(name: str) -> str:
    """Returns the address of a file relative to the page, so that a proxy may serve us under any path."""
    return f"{ASSETS}/{digest()}/{name}"


def dashboard_html() -> str:
    """Returns the dashboard's page."""
    preloads = [
        f'<link rel="modulepreload" href="{address(path.name)}">'
        for path in _own_files()
        if path.suffix == ".js" and path.stem not in ("main", "theme")
    ]
    text = (_OWN / _PAGE).read_text(encoding="utf-8")
    return Template(text).substitute(assets=f"{ASSETS}/{digest()}", preloads="\n".join(preloads))


@cache
def digest() -> str:
    """Returns one digest of all files."""
    contents = blake2b(digest_size=8)
    for path in _own_files():
        contents.update(path.name.encode() + b"\0" + path.read_bytes())
    for distribution, _, _ in _THIRD_PARTY.values():
        contents.update(version(distribution).encode())
    return contents.hexdigest()


def _own_files() -> list[Path]:
    return sorted(path for path in _OWN.iterdir() if path.suffix in _MEDIA_TYPES)


async def asset(request: Request) -> Response:
    """Serves one file. A page of another version, during an upgrade, gets ours without permission to cache it."""
    path = _paths().get(request.path_params["name"])
    if path is None:
        raise NotFound("there is nothing at this path", kind="path-not-found")
    headers = {"Vary": "Accept-Encoding"}
    if request.path_params["digest"] == digest():
        headers["Cache-Control"] = _CACHE_FOREVER
    if _ACCEPTS_GZIP.search(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
    body = await run_in_threadpool(_contents, path, compressed="Content-Encoding" in headers)
    return Response(body, headers=headers, media_type=_MEDIA_TYPES[path.suffix])


@cache
def _paths() -> dict[str, Path]:
    """Returns all files by name."""
    found = {path.name: path for path in _own_files()}
    for name, (_, package, inside) in _THIRD_PARTY.items():
        spec = find_spec(package)
        assert spec is not None, f"{package} is a dependency"
        found[name] = Path(*(spec.submodule_search_locations or ())) / inside
    return found


def _contents(path: Path, *, compressed: bool) -> bytes:
    """Returns the contents of a file. All answers share them, so that clients who do not read hold nothing more."""
    with _READING:  # else many clients that ask at once would each have it read and compressed
        return _compressed(path) if compressed else _plain(path)


@cache
def _plain(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _compressed(path: Path) -> bytes:
    return gzip.compress(_plain(path), 6, mtime=0)
