"""The client needs httpx and nothing else."""

import ast
import json
import sys

import cbwk_client
import service.client
from service import problems
from tests import installations, tidy
from tests.documents import ROOT

IMPORTED = """
import json
from cbwk_client import Client
with Client("http://127.0.0.1:9", "nobody-listens-at-this-port") as client:
    assert client.decide("c", [0.5], fallback=None).is_fallback
names = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__"}
print(json.dumps(sorted(names)))
"""


def sources():
    return [source for source in tidy.python_sources() if source.name.startswith("cbwk_client/")]


def test_the_client_works_where_only_httpx_is_installed_and_loads_nothing_else(tmp_path):
    names = installations.top_level_names(installations.closure(["httpx", "sniffio"]).values())
    installations.link(tmp_path, names | {"cbwk_client": ROOT / "cbwk_client"})
    done = installations.run(tmp_path, IMPORTED)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {"cbwk_client", "httpx"} <= loaded <= {"cbwk_client"} | {name.removesuffix(".py") for name in names}


def imported_packages(source):
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_the_client_imports_the_standard_library_httpx_and_itself_also_for_types():
    packages = {package for source in sources() for package in imported_packages(source)}
    assert packages - sys.stdlib_module_names == {"_typeshed", "cbwk_client", "httpx"}


def test_the_client_has_no_import_cycle_not_even_for_types():
    graph = tidy.import_graph(sources())
    assert "cbwk_client.reports" in graph["cbwk_client.errors"]
    assert tidy.import_cycle(graph) == []


def test_the_old_name_exports_everything():
    assert all(getattr(service.client, name) is getattr(cbwk_client, name) for name in cbwk_client.__all__)
    assert service.client.__all__ == cbwk_client.__all__


def test_the_client_knows_the_types_of_the_service_s_problems():
    assert cbwk_client.errors.TYPE_PREFIX == problems.TYPE_PREFIX


def test_every_module_class_and_function_of_the_client_has_a_docstring():
    assert [violation for source in sources() for violation in tidy.missing_docstrings(source)] == []
