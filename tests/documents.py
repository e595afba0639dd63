"""Pages of documentation: their blocks are run, and what a block prints must equal what the page shows.

The blocks of a page run in order: `sh` in a folder of the page, `python` in a namespace of the page. A `text` or `json`
block directly after one shows what it prints (`json`: one document per line); "…" matches anything. A comment directly
above a block says why the block is not run: <!-- not run: … -->, <!-- on PostgreSQL -->. A `mermaid` block is
a diagram: see tests/diagrams.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.service.server_process import CBWK, RunningServer, running_server

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "http://127.0.0.1:8000"
KEY = "choose-any-text-of-32-characters-or-more"
SHELL_SECONDS_MAX = 60
_FENCE = re.compile(
    r"^(?:<!-- (?P<why>(?:not run: |on )[^\n]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block; `shown` is the output that the page shows for it."""

    language: str
    text: str
    line: int
    why_not: str | None = None
    shown: Block | None = None

    @property
    def is_run(self) -> bool:
        """Whether the block is a command or a snippet that runs."""
        return self.language in ("sh", "python") and self.why_not is None


def blocks(markdown: str) -> list[Block]:
    """Every block; a block of output belongs to the block directly before it.

    >>> [block.shown.text for block in blocks("```sh\\necho 1\\n```\\n\\n```text\\n1\\n```\\n")]
    ['1\\n']
    """
    found: list[Block] = []
    end = -1
    for match in _FENCE.finditer(markdown):
        line = markdown.count("\n", 0, match.start()) + 1
        block = Block(match["language"], match["text"], line, match["why"])
        follows = found and found[-1].is_run and not markdown[end : match.start()].strip()
        if follows and block.language in ("text", "json"):
            last = found.pop()
            block = Block(last.language, last.text, last.line, last.why_not, block)
        found.append(block)
        end = match.end()
    return found


def links(markdown: str) -> list[str]:
    """The targets of all links and pictures that are not web addresses.

    >>> links("[a](b.md#c), ![d](e.svg), [f](https://example.org)")
    ['b.md#c', 'e.svg']
    """
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", markdown) if not target.startswith("https://")]


def anchors(markdown: str) -> list[str]:
    """The anchors of all headings, as GitHub makes them.

    >>> anchors("# What is `practical`?\\n")
    ['what-is-practical']
    """
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def section(markdown: str, title: str) -> str:
    """The text under a heading of the second level."""
    assert f"\n## {title}\n" in markdown, f"there is no section {title!r}"
    return markdown.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(markdown: str, title: str) -> list[list[str]]:
    """The rows of the first table under a heading of the second level, without its head."""
    lines = section(markdown, title).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


@dataclass
class Session:
    """Runs the blocks of one page against one server."""

    server: RunningServer
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, page: str, block: Block) -> str:
        """Run a block, compare its output with the page, and return the output."""
        text = block.text
        for old, new in ({ADDRESS: self.server.url} | dict(self.replaced)).items():
            text = text.replace(old, new)
        place = f"{page}:{block.line}"
        printed = self._python(text, place) if block.language == "python" else self._shell(text, place)
        if block.shown is not None:
            problem = difference(printed, block.shown)
            assert problem is None, f"{place}: {problem}\n--- printed\n{printed}\n--- shown\n{block.shown.text}"
        return printed

    def _python(self, text: str, place: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, place, "exec"), self.names)
        return out.getvalue()

    def _shell(self, text: str, place: str) -> str:
        text = text.replace(".venv/bin/", f"{CBWK.parent}/")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CBWK_")}
        environment |= {"CBWK_URL": self.server.url, "CBWK_API_KEY": KEY, "COLUMNS": "120", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["sh", "-euc", text],
            cwd=self.folder,
            env=environment | dict(self.environment),
            capture_output=True,
            text=True,
            timeout=SHELL_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{place} ended with {done.returncode}: {done.stderr}{done.stdout}"
        return done.stdout


def difference(printed: str, shown: Block) -> str | None:
    """Describe the first difference between the output and the page, or return None; "…" matches anything.

    >>> difference("a 17 b\\n", Block("text", "a … b\\n", 1)), difference('{"a": 1}', Block("json", '{"a": "…"}', 1))
    (None, None)
    >>> difference("a\\n", Block("text", "b\\n", 1))
    "line 1 is 'a', not 'b'"
    """
    found, wanted = printed.strip("\n").splitlines(), shown.text.strip("\n").splitlines()
    if len(found) != len(wanted):
        return f"{len(found)} lines, not {len(wanted)}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=True), start=1):
        if shown.language == "json":
            same = _alike(json.loads(one), json.loads(other))
        else:
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in other.strip().split("…"))
            same = re.fullmatch(pattern.replace(r"\ .*", ".*"), " ".join(one.split())) is not None
        if not same:
            return f"line {number} is {one!r}, not {other!r}"
    return None


def _alike(found: Any, wanted: Any) -> bool:
    if wanted == "…":
        return True
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_alike(found[name], wanted[name]) for name in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(_alike, found, wanted))
    return bool(found == wanted)


@pytest.fixture(scope="session")
def reading_server() -> Iterator[RunningServer]:
    """One service for all documents."""
    with running_server(KEY) as server:
        yield server
