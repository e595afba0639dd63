"""Every command of the README runs, in order, on one service."""

import re
import shutil
import subprocess

import pytest

from tests.documents import KEY, ROOT, Session, blocks, section

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PAGES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("", "docs", "service", "cbwk_core")
    for path in (ROOT / folder).glob("*.md")
)
EVERYTHING = [block for block in blocks(TEXT) if block.is_run]
MAKES = [block for block in EVERYTHING if re.search(r"\bmake ", block.text)]


def test_the_readme_has_commands_and_one_block_of_answers():
    assert {block.language for block in EVERYTHING} == {"sh"}
    assert len(blocks(TEXT)) - len(EVERYTHING) == 1, "the answers of the session, and nothing that is not run"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the session needs curl")
def test_everything_in_the_readme_runs_in_order_and_prints_what_is_shown(reading_server, tmp_path):
    (start, session) = [block for block in blocks(section(TEXT, "A campaign in four requests")) if block.is_run]
    assert re.fullmatch(r"CBWK_ADMIN_KEY=(\S+) make run\n", start.text).group(1) == KEY
    (shown,) = [block for block in blocks(TEXT) if block.language == "json"]
    reader = Session(reading_server, tmp_path)
    for block in EVERYTHING:
        if block in MAKES:
            continue
        if block.text == session.text:
            block = type(block)(block.language, block.text, block.line, None, shown)
        printed = reader.run(README.name, block)
        assert printed.strip(), f"line {block.line} prints nothing"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_every_target_of_make_that_a_page_names_exists():
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\s])", "\n".join(block.text for block in MAKES)))
    named |= set(re.findall(r"`(?:\S+=\S+ )?make ([a-z]+)(?: \S+)?`", PAGES))
    assert {"run", "demo", "test", "lint", "faults"} <= named
    # A dry run: the service and the demo have tests of their own.
    subprocess.run(["make", "-n", *sorted(named)], cwd=ROOT, check=True, capture_output=True, timeout=30)


def test_every_command_of_cbwk_that_a_page_names_exists():
    from service.cli import app  # noqa: PLC0415 - it takes a while, and only this test needs it

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"`(?:\.venv/bin/)?cbwk ([a-z]+)", PAGES))
    assert named
    assert named <= known


@pytest.mark.parametrize("name", ["how fast", "how good"])
def test_the_readme_has_one_figure_of_speed_and_one_of_regret(name):
    place = TEXT.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    assert len(re.findall(r"\*\*[^*]*\d[^*]*\*\*", place)) == 1


def test_the_figure_of_speed_is_in_the_table_of_the_benchmarks():
    (figure,) = re.findall(r"\*\*([\d,]+) durable decisions a second\*\*", TEXT)
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"({figure} a second)" in section(benchmarks, "Speed of the service")
