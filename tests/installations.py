"""Folders that hold some distributions of this environment and nothing else, and an interpreter that sees only one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

RUN_SECONDS_MAX = 120
# Imports every module of the packages in the arguments, except those that an extra of its own is for.
IMPORT_ALL = """
import importlib, pkgutil
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        apart = ("cbwk_core.simulation.", "service.demo", "service.migrations", "service.tracing")
        if not module.name.startswith(apart):
            importlib.import_module(module.name)
"""


def closure(requirements: Iterable[str], extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """Return the installed distributions that the requirements need, with all they need themselves, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), frozenset(extras)) for text in requirements]
    seen = set()
    while waiting:
        requirement, wanted = waiting.pop()
        key = (requirement.name.lower(), frozenset(requirement.extras))
        markers = [{"extra": extra} for extra in ("", *wanted)]
        if requirement.marker and not any(requirement.marker.evaluate(marker) for marker in markers):
            continue
        if key not in seen:
            seen.add(key)
            found[key[0]] = distribution(requirement.name)
            needed = found[key[0]].requires or ()
            waiting += [(Requirement(text), frozenset(requirement.extras)) for text in needed]
    return found


def top_level_names(distributions: Iterable[Distribution]) -> dict[str, Path]:
    """Return the files and folders of the distributions in site-packages, by name."""
    names = {}
    for one in distributions:
        for file in one.files or ():
            name = file.parts[0]
            if name not in ("..", "__pycache__"):
                names[name] = Path(str(one.locate_file(name)))
    return names


def link(folder: Path, names: dict[str, Path]) -> None:
    """Make the folder a site-packages with these names."""
    for name, path in names.items():
        (folder / name).symlink_to(path)


def run(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that imports from the standard library and the folder only."""
    code = f"import sys; sys.path.append({str(folder)!r})\n{code}"
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX, cwd=folder)
