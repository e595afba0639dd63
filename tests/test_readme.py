"""The README is tried as a newcomer would: every command and snippet, in order, on one service."""

import re
import shutil
import subprocess

import pytest

from tests.documents import KEY, ROOT, Session, blocks, section

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
EVERYTHING = [block for block in blocks(TEXT) if block.is_run]
MAKES = [block for block in EVERYTHING if re.search(r"\bmake ", block.text)]


def test_the_readme_has_commands_and_snippets():
    assert {block.language for block in EVERYTHING} == {"sh", "python"}
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
    assert (tmp_path / "decisions.csv").read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_every_target_of_make_that_is_named_exists():
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\s])", "\n".join(block.text for block in MAKES)))
    named |= set(re.findall(r"`make ([a-z]+)`", TEXT))
    assert {"run", "demo", "test"} <= named
    # Only shown what it would do: the service and the demo have tests of their own, and this is the test.
    subprocess.run(["make", "-n", *sorted(named)], cwd=ROOT, check=True, capture_output=True, timeout=30)


def test_every_command_of_cbwk_that_is_named_exists():
    from service.cli import app  # noqa: PLC0415 - it takes a while, and only this test needs it

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    named = set(re.findall(r"`(?:\.venv/bin/)?cbwk ([a-z]+)", TEXT))
    assert named
    assert named <= known


def test_every_file_the_readme_points_to_exists():
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


def test_the_readme_keeps_a_place_for_each_kind_of_figures():
    for name in ("how fast", "how good"):
        place = TEXT.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
        assert "|---|" in place
