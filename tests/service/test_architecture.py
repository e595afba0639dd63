"""docs/architecture.md shows the state table of the code; with CBWK_REWRITE_DOCS=1 the test rewrites that section."""

from __future__ import annotations

import os
import re

from service.domain.status import TRANSITIONS
from tests.documents import ROOT

PAGE = ROOT / "docs" / "architecture.md"
SECTION = re.compile(r"(?<=<!-- states:begin -->\n).*(?=<!-- states:end -->)", re.DOTALL)


def drawn() -> str:
    """Returns the section: a Mermaid diagram and the table."""
    events: dict[tuple[str, str], list[str]] = {}
    for row in TRANSITIONS:
        for before in row.before or ("[*]",):
            events.setdefault((before, row.to), []).append(row.event)
    diagram = [f"    {before} --> {to}: {' / '.join(of)}" for (before, to), of in events.items()]
    table = [
        f"| {', '.join(row.before) or '–'} | {row.event} | {row.to} | {row.movement} | {row.teaches} |"
        for row in TRANSITIONS
    ]
    head = ["| from | event | to | account | teaches |", "|---|---|---|---|---|"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *diagram, "```", "", *head, *table]) + "\n"


def test_the_page_shows_the_table_of_states_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("CBWK_REWRITE_DOCS"):
        text = SECTION.sub(lambda _: drawn(), text)
        PAGE.write_text(text, encoding="utf-8")
    assert SECTION.findall(text) == [drawn()], "CBWK_REWRITE_DOCS=1 rewrites the section"


def test_a_status_accepts_an_event_once_and_can_be_reached():
    accepted = [(before, row.event) for row in TRANSITIONS for before in row.before]
    assert len(accepted) == len(set(accepted))
    assert {before for before, _ in accepted} <= {row.to for row in TRANSITIONS}
