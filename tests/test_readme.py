import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service.server_process import running_server

README = Path(__file__).resolve().parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language, text=TEXT):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def section(title):
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


EXAMPLES = blocks("python")
ADDRESS = "http://127.0.0.1:8000"
KEY = re.search(r"CBWK_ADMIN_KEY=(\S+) make run", TEXT).group(1)


def test_the_readme_has_an_example():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_readme_runs_and_prints_its_result(example, capsys):
    with ExitStack() as stack:
        if ADDRESS in example:
            example = example.replace(ADDRESS, stack.enter_context(running_server(KEY)).url)
        exec(compile(example, README.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the session needs curl")
def test_the_session_of_the_readme_answers_what_it_shows():
    start, session = blocks("sh", section("A campaign in four requests"))
    (shown,) = blocks("json", section("A campaign in four requests"))
    key = re.fullmatch(r"CBWK_ADMIN_KEY=(\S+) make run\n", start).group(1)
    assert session.count("http://127.0.0.1:8000") == 1
    with running_server(key) as server:
        here = session.replace("http://127.0.0.1:8000", server.url)
        done = subprocess.run(["sh", "-euc", here], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = [json.loads(line) for line in shown.splitlines()]
    assert len(found) == len(expected)
    for answer, wanted in zip(found, expected, strict=True):
        assert {name: "…" if wanted.get(name) == "…" else value for name, value in answer.items()} == wanted


def test_every_file_the_readme_points_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("https://") or (README.parent / target).is_file(), target
