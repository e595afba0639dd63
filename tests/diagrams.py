"""A simple check of Mermaid diagrams, for the subset of the language that the pages use.

It knows three kinds of diagrams. Every line must be a statement of its kind, quotes and brackets must balance, blocks
must be closed, and the endpoints of an edge must be declared (a state may also be a simple name).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ID = r"[A-Za-z_]\w*"
_PAIRS = {")": "(", "]": "[", "}": "{"}
_KINDS = {
    "flowchart": re.compile(r"flowchart (TB|TD|BT|LR|RL)"),
    "sequence": re.compile(r"sequenceDiagram"),
    "state": re.compile(r"stateDiagram-v2"),
}
_NODE = re.compile(rf'({_ID})(\["[^"]+"\]|\("[^"]+"\)|\[\("[^"]+"\)\]|\{{"[^"]+"\}})')
_SUBGRAPH = re.compile(rf'subgraph ({_ID})\["[^"]+"\]')
_EDGE = re.compile(rf"({_ID}(?: & {_ID})*) (?:-->|-\.->|---|==>)(?:\|[^|]+\|)? ({_ID}(?: & {_ID})*)")
_PARTICIPANT = re.compile(rf"(?:participant|actor) ({_ID})(?: as .+)?")
_MESSAGE = re.compile(rf"({_ID})(?:-->>|->>|-\)|--\))({_ID}): .+")
_NOTE = re.compile(rf"Note (?:over|right of|left of) ({_ID})(?:,({_ID}))?: .+")
_BLOCK = re.compile(r"(?:alt|opt|loop|par|critical|rect) .+")
_BRANCH = re.compile(r"(?:else|and|option)(?: .+)?")
_STATE = re.compile(rf'state "[^"]+" as ({_ID})')
_TRANSITION = re.compile(rf"(\[\*\]|{_ID}) --> (\[\*\]|{_ID})(?:: [^:]+| : [^:]+)?")
_DIRECTION = re.compile(r"direction (TB|TD|BT|LR|RL)")


def diagram_faults(text: str) -> list[str]:
    """Describe everything that is wrong with a diagram.

    >>> diagram_faults('flowchart LR\\na["A"]\\nb["B"]\\na --> b\\n')
    []
    >>> diagram_faults('flowchart LR\\na["A"]\\na --> c\\n')
    ['c is not declared']
    """
    head, *body = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    kind = next((name for name, pattern in _KINDS.items() if pattern.fullmatch(head)), None)
    if kind is None:
        return [f"unknown kind of diagram: {head}"]
    statements = [line for line in body if not line.startswith("%%")]
    faults = [fault for line in statements for fault in _unbalanced(line)]
    check = {"flowchart": _flowchart, "sequence": _sequence, "state": _state}[kind]
    return faults + list(check(statements))


def _unbalanced(line: str) -> Iterator[str]:
    if line.count('"') % 2:
        yield f"a quote is not closed: {line}"
    if re.search(r"[;#]|\bend\b", line) and line != "end":
        yield f"Mermaid reads a semicolon, a # or the word end as its own: {line}"
    opened: list[str] = []
    for mark in re.sub(r'"[^"]*"', "", line):
        if mark in _PAIRS.values():
            opened.append(mark)
        elif mark in _PAIRS and (not opened or opened.pop() != _PAIRS[mark]):
            opened.append(mark)
            break
    if opened:
        yield f"a bracket has no partner: {line}"


def _flowchart(statements: list[str]) -> Iterator[str]:
    declared, used, depth = set(), [], 0
    for line in statements:
        if match := _SUBGRAPH.fullmatch(line) or _NODE.fullmatch(line):
            declared.add(match[1])
            depth += line.startswith("subgraph ")
        elif match := _EDGE.fullmatch(line):
            used += [*match[1].split(" & "), *match[2].split(" & ")]
        elif line == "end":
            depth -= 1
        elif not _DIRECTION.fullmatch(line):
            yield f"not a statement of a flowchart: {line}"
    yield from _undeclared(used, declared)
    if depth:
        yield "a subgraph is not closed, or closed twice"


def _sequence(statements: list[str]) -> Iterator[str]:
    declared, used, depth = set(), [], 0
    for line in statements:
        if match := _PARTICIPANT.fullmatch(line):
            declared.add(match[1])
        elif match := _MESSAGE.fullmatch(line) or _NOTE.fullmatch(line):
            used += [name for name in match.groups() if name]
        elif line == "end" or _BLOCK.fullmatch(line):
            depth += -1 if line == "end" else 1
        elif line != "autonumber" and not (depth and _BRANCH.fullmatch(line)):
            yield f"not a statement of a sequence diagram: {line}"
    yield from _undeclared(used, declared)
    if depth:
        yield "a block is not closed, or closed twice"


def _state(statements: list[str]) -> Iterator[str]:
    for line in statements:
        if not any(pattern.fullmatch(line) for pattern in (_TRANSITION, _STATE, _DIRECTION)):
            yield f"not a statement of a state diagram: {line}"


def _undeclared(used: list[str], declared: set[str]) -> Iterator[str]:
    for name in sorted(set(used) - declared):
        yield f"{name} is not declared"
