"""The pages for people and the files they load, as any HTTP client sees them."""

import gzip
import subprocess
import sys
from urllib.parse import urljoin

import pytest

from service import assets
from service.app import create_app
from tests.service.http_client import client_of


@pytest.fixture
def client():
    with client_of(create_app()) as opened:
        yield opened


def get(client, path, **headers):
    return client("GET", path, key=None, headers=headers)


def test_the_pages_are_open_and_run_nothing_but_our_files(client):
    for path in ("/dashboard", "/docs"):
        answer = get(client, path)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["style-src"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "://" not in answer.headers["content-security-policy"]
    assert policy["script-src"].startswith("'self' 'sha256-")  # the few lines of Swagger UI's own page
    assert "sha256" not in get(client, "/dashboard").headers["content-security-policy"]


def test_the_root_leads_to_the_dashboard_and_the_favicon_to_the_icon(client):
    for path, target in (("/", "/dashboard"), ("/favicon.ico", f"/{assets.address('icon.svg')}")):
        answer = get(client, path)
        assert answer.status_code == 307
        assert urljoin(path, answer.headers["location"]) == target
        assert get(client, target).status_code == 200


@pytest.mark.parametrize("name", ["main.js", "style.css", "icon.svg", "plotly.min.js", "swagger-ui-bundle.js"])
def test_a_file_may_be_kept_for_good_and_comes_compressed_to_those_who_take_it(client, name):
    address = urljoin("/dashboard", assets.address(name))
    plain = get(client, address, **{"Accept-Encoding": "identity"})
    assert plain.status_code == 200
    assert "immutable" in plain.headers["cache-control"]
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert "content-encoding" not in plain.headers
    refused = get(client, address, **{"Accept-Encoding": "br, gzip;q=0"})
    assert "content-encoding" not in refused.headers
    small = get(client, address, **{"Accept-Encoding": "br, gzip;q=0.8"})
    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == "Accept-Encoding"
    assert small.content == plain.content  # httpx has unpacked it
    assert int(small.headers["content-length"]) == len(gzip.compress(plain.content, 6, mtime=0))


def test_a_page_of_another_version_gets_our_file_and_does_not_keep_it(client):
    answer = get(client, "/assets/0000/main.js")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["page.html", "nothing.js", "..%2fapp.py", "%2e%2e/app.py", "app.py"])
def test_there_is_no_file_but_those(client, name):
    answer = get(client, f"/assets/{assets.digest()}/{name}")
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:cbwk:problem:path-not-found"


def test_every_file_a_module_imports_is_preloaded_and_there():
    html = assets.dashboard_html()
    for path in assets._own_files():
        for line in path.read_text().splitlines():
            if path.suffix == ".js" and " from " in line and line.rstrip().endswith('.js";'):
                name = line.rsplit('"./', 1)[1].removesuffix('";')
                assert assets.address(name) in html, f"{path.name} imports {name}"


def test_a_start_imports_neither_plotly_nor_swagger():
    program = (
        "import sys, service.server, service.app; print([m for m in ('plotly', 'fastapi_swagger') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
