"""Dockerfile and docker-compose.yml as data, for tests on machines without a Docker engine."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.documents import ROOT

INTERPOLATED = re.compile(r"\$\{(?P<name>\w+)(?::\?[^}]*)?\}")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, its lines joined."""

    name: str
    text: str
    stage: int

    @property
    def words(self) -> list[str]:
        """What follows the name, as a JSON array or as a shell would split it."""
        return list(json.loads(self.text)) if self.text.startswith("[") else shlex.split(self.text)


def instructions(path: Path = ROOT / "Dockerfile") -> list[Instruction]:
    """The instructions of a Dockerfile in order, comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    found: list[Instruction] = []
    stage = -1
    for text in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if text.strip():
            name, _, rest = text.partition(" ")
            stage += name == "FROM"
            found.append(Instruction(name, rest.strip(), stage))
    return found


def copied() -> Iterator[tuple[str, str]]:
    """The files and folders that the image is built from, and where they go."""
    for one in instructions():
        if one.name == "COPY" and not one.text.startswith("--from"):
            *sources, target = one.words
            yield from ((source, target) for source in sources)


def copy_sources(folder: Path) -> None:
    """Copy everything that the image is built from into a new folder."""
    folder.mkdir()
    for source, target in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, folder / target)


def environment() -> dict[str, str]:
    """What ENV sets in the image."""
    settings = [word.partition("=") for one in instructions() if one.name == "ENV" for word in one.words]
    return {name: value for name, _, value in settings}


def healthcheck() -> list[str]:
    """The command that Docker runs to see whether the container is well."""
    (one,) = [one for one in instructions() if one.name == "HEALTHCHECK"]
    return list(json.loads(one.text.partition("CMD ")[2]))


def compose() -> dict[str, Any]:
    """The Compose file, anchors and merges resolved."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return document


def gateway() -> str:
    """The configuration of the gateway."""
    return (ROOT / compose()["configs"]["haproxy"]["file"]).read_text(encoding="utf-8")
