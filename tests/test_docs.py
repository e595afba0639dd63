"""The pages in docs/: what they say to do is done, what they list is what there is."""

import ast
import re
import runpy
import shutil
from xml.etree import ElementTree as ET

import httpx
import pytest

from service import problems
from service.problems import Problem
from service.schemas.deciding import Decision, FeedbackResult
from service.settings import Settings, environment_variable
from tests.documents import (
    KEY,
    ROOT,
    Session,
    blocks,
    section,
    table,
)

DOCS = ROOT / "docs"
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages need curl")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
OPERATED = {
    "id": "operating",
    "horizon": 100,
    "arms": [{"id": "a"}],
    "resources": [{"id": "usd", "budget": 5, "max_cost": 1}],
    "context": {"dimension": 1},
}
KINDS = {name: kind for name, kind in vars(problems).items() if isinstance(kind, type) and issubclass(kind, Problem)}


def calls(server):
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False, timeout=30)


def word(cell):
    """A name in a table, without the marks of code."""
    return re.fullmatch(r"`([^`]+)`", cell).group(1)


@NEEDS_CURL
@pytest.mark.parametrize("name", [name for name in PAGES if name != "operating.md"])
def test_everything_on_a_page_runs_and_prints_what_is_shown(name, reading_server, tmp_path):
    session = Session(reading_server, tmp_path)
    for block in blocks(PAGES[name]):
        if block.is_run:
            session.run(name, block)


@NEEDS_CURL
def test_everything_an_operator_is_told_to_do_can_be_done(reading_server):
    with calls(reading_server) as client:
        client.post("/campaigns", json=OPERATED).raise_for_status()
        client.post("/decide", json={"campaign_id": "operating", "context": [1]}).raise_for_status()
    session = Session(reading_server, reading_server.folder)
    for block in blocks(PAGES["operating.md"]):
        if block.is_run:
            session.run("operating.md", block)


def test_only_what_needs_docker_is_never_run_and_says_so():
    left = [
        (name, block) for name, text in PAGES.items() for block in blocks(text) if block.language in ("sh", "python")
    ]
    left = [(name, block) for name, block in left if not block.is_run and block.why_not != "on PostgreSQL"]
    for name, block in left:
        assert block.why_not == "not run: needs a Docker engine", f"{name}:{block.line}"
        assert "docker " in block.text
    assert {name for name, _ in left} == {"operating.md"}


def test_every_block_of_a_page_is_something_to_run_or_what_it_prints():
    for name, text in PAGES.items():
        assert {block.language for block in blocks(text)} <= {"sh", "python"}, name


def test_every_file_and_heading_a_page_points_to_is_there():
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if not target.startswith("https://"):
                path, _, anchor = target.partition("#")
                file = (DOCS / path).resolve()
                assert file.is_file(), f"{name} points to {target}"
                headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
                anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert not anchor or anchor in anchors, f"{name} points to {target}"


def test_every_page_can_be_reached_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in PAGES if f"(docs/{name})" not in readme] == []


def test_the_script_draws_every_picture_and_every_picture_is_shown(tmp_path):
    make = runpy.run_path(str(DOCS / "pictures" / "make.py"))["make"]
    make.__globals__["ROUNDS"] = 50  # a short run will do
    make(tmp_path)
    drawn = {picture.name for picture in tmp_path.iterdir()}
    assert drawn == {picture.name for picture in (DOCS / "pictures").glob("*.svg")}
    for name in drawn:
        assert f"(pictures/{name})" in PAGES["concepts.md"]
        assert ET.parse(tmp_path / name).getroot().tag.endswith("svg")


def test_the_table_of_settings_is_the_settings():
    def shown(default):
        return "–" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"

    expected = [
        [f"`{environment_variable(name)}`", shown(field.default), field.description]
        for name, field in Settings.model_fields.items()
    ]
    assert table(PAGES["operating.md"], "Settings") == expected


def test_the_table_of_metrics_is_what_a_scrape_gives(reading_server):
    with calls(reading_server) as client:
        text = client.get("/metrics").text
    found = dict(re.findall(r"^# TYPE (cbwk_\w+) (\w+)$", text, re.MULTILINE))
    found = {name: kind for name, kind in found.items() if not name.endswith("_created")}
    rows = table(PAGES["operating.md"], "Metrics")
    assert {word(name): kind for name, kind, *_ in rows} == found


def words_of(description):
    """The words a field's description lists."""
    return re.findall(r"[a-z_]+", description.partition(";")[0].replace(" or ", ", "))


def test_the_tables_of_reasons_and_answers_are_what_the_interface_lists():
    faq = PAGES["faq.md"]
    reasons = [word(row[0]) for row in table(faq, "Why null?")]
    assert reasons == [*words_of(Decision.model_fields["reason"].description), "fallback"]
    statuses, warnings = section(faq, "What feedback is answered with").split("Warnings")
    for text, field in ((statuses, "status"), (warnings, "warnings")):
        shown = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        assert shown == words_of(FeedbackResult.model_fields[field].description)


def test_the_table_of_why_not_is_what_explanations_say():
    source = (ROOT / "service" / "engine" / "explaining.py").read_text(encoding="utf-8")
    explained = next(
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "explanation_of"
    )
    said = {
        value.value
        for node in ast.walk(explained)
        if isinstance(node, ast.IfExp)
        for value in (node.body, node.orelse)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    listed = section(PAGES["faq.md"], "Why null?").partition("| why_not |")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == said


def kinds_in_the_code():
    """Every type of problem that some line of the service makes, with its statuses."""
    found = {}
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", None))
                if name in KINDS:
                    said = [word.value for word in node.keywords if word.arg == "kind"]
                    assert all(isinstance(kind, ast.Constant) for kind in said), f"{path}:{node.lineno}"
                    kind = said[0].value if said else KINDS[name].kind
                    found.setdefault(kind, set()).add(KINDS[name].status)
    return found


def test_the_table_of_problems_has_every_type_with_its_status():
    expected = {kind.kind: {kind.status} for kind in KINDS.values()}
    for kind, statuses in kinds_in_the_code().items():
        expected[kind] = expected.get(kind, set()) | statuses
    rows = table(PAGES["faq.md"], "Problems")
    assert {word(row[0]): set(map(int, row[1].split(", "))) for row in rows} == expected
