"""The pages of documentation: their blocks run, their links and diagrams are sound, their tables match the code."""

import ast
import re
import runpy
import shutil
from xml.etree import ElementTree as ET

import httpx
import pytest
import yaml

from service import problems
from service.domain.campaign import PAUSED, RETIRED
from service.meanings import MEANINGS
from service.problems import Problem
from service.schemas.deciding import Decision, FeedbackResult
from service.settings import Settings, environment_variable
from tests.diagrams import diagram_faults
from tests.documents import KEY, ROOT, Session, anchors, blocks, links, section, table

DOCS = ROOT / "docs"
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages need curl")
# By its path in docs/; the README has a test of its own.
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
# Pages outside docs/, by their path from the root. Their blocks are not run, and they have none that could.
OTHER_PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "cbwk_core/DESIGN.md", "service/DESIGN.md")
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVERY_PAGE = {"README.md": README} | {f"docs/{name}": text for name, text in PAGES.items()} | OTHER_PAGES
RUNNABLE = [name for name, text in PAGES.items() if any(block.is_run for block in blocks(text))]
LINES_MAX = {"README.md": 150, "service/DESIGN.md": 250, "cbwk_core/DESIGN.md": 250}
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
    """The name in a cell of a table, without backquotes."""
    return re.fullmatch(r"`([^`]+)`", cell).group(1)


@NEEDS_CURL
@pytest.mark.parametrize("name", [name for name in RUNNABLE if name != "operating.md"])
def test_every_block_of_a_page_runs_and_prints_what_is_shown(name, reading_server, tmp_path):
    session = Session(reading_server, tmp_path)
    for block in blocks(PAGES[name]):
        if block.is_run:
            session.run(name, block)


@NEEDS_CURL
def test_every_block_for_operators_runs_and_prints_what_is_shown(reading_server):
    with calls(reading_server) as client:
        client.post("/campaigns", json=OPERATED).raise_for_status()
        client.post("/decide", json={"campaign_id": "operating", "context": [1]}).raise_for_status()
    session = Session(reading_server, reading_server.folder)
    for block in blocks(PAGES["operating.md"]):
        if block.is_run:
            session.run("operating.md", block)


def test_only_blocks_that_need_docker_are_never_run_and_say_so():
    commands = [(name, one) for name, text in PAGES.items() for one in blocks(text) if one.language in ("sh", "python")]
    never = [(name, block) for name, block in commands if not block.is_run and block.why_not != "on PostgreSQL"]
    for name, block in never:
        assert block.why_not == "not run: needs a Docker engine", f"{name}:{block.line}"
        assert "docker " in block.text
    assert {name for name, _ in never} == {"operating.md"}


def test_every_block_of_a_page_runs_or_shows_output_or_is_a_diagram():
    # The SQL of the page for operators is for another kind of server; test_distribution.py compares it with our tables.
    beside = {"operating.md": {"sql"}}
    for name, text in PAGES.items():
        assert {block.language for block in blocks(text)} <= {"sh", "python", "mermaid", *beside.get(name, ())}, name
    for name, text in OTHER_PAGES.items():
        assert {block.language for block in blocks(text)} <= {"mermaid"}, name
    for name, text in EVERY_PAGE.items():
        assert text.count("\n```") == 2 * len(re.findall(r"^```\w+$", text, re.MULTILINE)), f"{name} has an odd fence"


def test_every_diagram_is_well_formed():
    diagrams = [(name, one) for name, text in EVERY_PAGE.items() for one in blocks(text) if one.language == "mermaid"]
    assert diagrams
    assert {
        f"{name}:{block.line}": diagram_faults(block.text) for name, block in diagrams if diagram_faults(block.text)
    } == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pie\n",
        'flowchart TD\na["open\n',
        'flowchart TD\na["A"]\na --> b\n',
        'flowchart TD\nsubgraph s["S"]\na["A"]\n',
        'flowchart TD\na["A"]\na -> a\n',
        "sequenceDiagram\nparticipant A\nA->>B: hello\n",
        "sequenceDiagram\nparticipant A\nA->>A: f(x\n",
        "sequenceDiagram\nparticipant A\nA->>A: one; two\n",
        "sequenceDiagram\nparticipant A\nalt yes\nA->>A: hello\n",
        "sequenceDiagram\nparticipant A\nelse no\n",
        "stateDiagram-v2\nheld -> charged\n",
        "stateDiagram-v2\nheld --> charged : costs : again\n",
    ],
)
def test_a_broken_diagram_is_found(text):
    assert diagram_faults(text) != []


@pytest.mark.parametrize(
    "text",
    [
        'flowchart LR\nsubgraph s["S (1)"]\na["A"]\nb[("B")]\nend\na -->|uses| b\na & b --> s\n',
        "sequenceDiagram\nautonumber\nparticipant A as B\nA->>A: x\nalt yes\nA-->>A: f(x)\nelse\nNote over A: x\nend\n",
        'stateDiagram-v2\ndirection LR\n[*] --> held : decided\nheld --> [*]\nstate "on hold" as held\n',
    ],
)
def test_a_sound_diagram_is_accepted(text):
    assert diagram_faults(text) == []


def test_every_file_and_heading_a_page_links_to_exists():
    for name, text in EVERY_PAGE.items():
        for target in links(text):
            path, _, anchor = target.partition("#")
            file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
            assert file.is_relative_to(ROOT), f"{name} links to {target}"
            assert file.is_file(), f"{name} links to {target}"
            assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), f"{name} links to {target}"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in EVERY_PAGE:
            reached.add(name)
            files = [((ROOT / name).parent / target.partition("#")[0]).resolve() for target in links(EVERY_PAGE[name])]
            waiting += [file.relative_to(ROOT).as_posix() for file in files]
    assert set(EVERY_PAGE) - reached == set()


def test_no_page_is_longer_than_its_limit():
    lines = {name: len(EVERY_PAGE[name].splitlines()) for name in LINES_MAX}
    assert {name: count for name, count in lines.items() if count > LINES_MAX[name]} == {}


def test_every_decision_record_has_its_sections_and_is_listed_under_its_number():
    index = PAGES["decisions/README.md"]
    records = [name for name in PAGES if name.startswith("decisions/") and name != "decisions/README.md"]
    listed = re.findall(r"^- (\d+)\. \[(.+)\]\((.+)\)$", index, re.MULTILINE)
    assert [f"decisions/{file}" for *_, file in listed] == records
    for number, (name, (shown, title, _)) in enumerate(zip(records, listed, strict=True), start=1):
        assert int(shown) == number == int(name.removeprefix("decisions/")[:4])
        assert PAGES[name].startswith(f"# {number}. {title}\n"), name
        assert re.findall("^## (.+)$", PAGES[name], re.MULTILINE) == ["Context", "Decision", "Consequences", "Figures"]


def test_every_entry_of_the_changelog_fits_a_line():
    lines = OTHER_PAGES["CHANGELOG.md"].splitlines()
    releases = [line for line in lines if line.startswith("## ")]
    assert releases[-1] == "## [0.1.0]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\]( - .+)?", release) for release in releases)
    entries = lines[lines.index(releases[0]) :]
    assert [line for line in entries if line and not line.startswith(("## ", "### ", "- "))] == []
    assert [line for line in entries if len(line) > 120] == []


def test_the_hooks_before_a_commit_run_what_make_lint_runs():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    commands = re.findall(r"^\t@\$\(BIN\)/(.+)$", recipe, re.MULTILINE)
    (group,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["entry"].removeprefix(".venv/bin/") for hook in group["hooks"]] == commands != []


def test_the_script_draws_every_picture_and_every_picture_is_shown(tmp_path):
    make = runpy.run_path(str(DOCS / "pictures" / "make.py"))["make"]
    make.__globals__["ROUNDS"] = 50  # a short run will do
    make.__globals__["VISITORS_BY_DAY"] = make.__globals__["VISITORS_BY_NIGHT"] = 1
    make(tmp_path)
    drawn = {picture.name for picture in tmp_path.iterdir()}
    assert drawn == {picture.name for picture in (DOCS / "pictures").glob("*.svg")}
    for name in drawn:
        assert f"(pictures/{name})" in PAGES["concepts.md"] + PAGES["budgets.md"]
        assert ET.parse(tmp_path / name).getroot().tag.endswith("svg")


def test_the_reference_is_what_its_script_makes_from_openapi():
    reference = runpy.run_path(str(DOCS / "reference.py"))["reference"]
    assert PAGES["reference.md"] == reference(), "run .venv/bin/python docs/reference.py"


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
    """The words that the description of a field lists."""
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
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "service" / "domain").glob("*.py")]
    functions = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    (explained,) = [function for function in functions if function.name == "explanation_of"]
    said = {
        value.value
        for node in ast.walk(explained)
        if isinstance(node, ast.IfExp)
        for value in (node.body, node.orelse)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    listed = section(PAGES["faq.md"], "Why null?").partition("| why_not |")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == {*said, RETIRED, PAUSED}


def kinds_in_the_code():
    """Every type of problem that the code of the service makes, with its statuses."""
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
    assert {word(row[0]): (row[2], row[3]) for row in rows} == MEANINGS
    assert {word(row[0]): set(map(int, row[1].split(", "))) for row in rows} == expected
