"""The rules of the code itself. A rule takes one source file and yields what it finds wrong there."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

_PACKAGES = ("cbwk_core", "service", "tests")
_MADE_BY_TOOLS = {"build", "data", "dist", "out", "__pycache__"}
_VISIBLE_DOT_NAMES = {".ci", ".editorconfig", ".gitattributes", ".gitignore"}

# Put together from halves, since this file is read by its own rules.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|mnt|root|Users|work(?:space)?)/\w|\b[A-Z]:\\(?:Users|Windows)\b")
_IMPURE_PREFIXES = ("numpy.random.", "time.")
_IMPURE_BUILTINS = {"open", "print", "eval", "exec", "input"}
_PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}


@dataclass(frozen=True)
class Source:
    """One text file, named by its path from the root of the project."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The file as Python."""
        return ast.parse(self.text, filename=self.name)

    def at(self, line: int, what: str) -> str:
        """One finding, in the form editors jump to."""
        return f"{self.name}:{line}: {what}"


def python_sources() -> list[Source]:
    """Every Python file of the project."""
    return [source for source in text_sources() if source.name.endswith(".py")]


def library_sources() -> list[Source]:
    """Every file of the library."""
    return [source for source in python_sources() if source.name.startswith("cbwk_core/")]


def pure_sources() -> list[Source]:
    """The library without its simulations, which may read clocks and write files."""
    return [source for source in library_sources() if not source.name.startswith("cbwk_core/simulation/")]


@cache
def text_sources() -> list[Source]:
    """Every text file a clone would have, read and parsed once."""
    sources = []
    for path in sorted(_kept_files(ROOT)):
        try:
            sources.append(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return sources


def _kept_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        hidden = path.name.startswith(".") and path.name not in _VISIBLE_DOT_NAMES
        if hidden or path.name in _MADE_BY_TOOLS or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from _kept_files(path)
        else:
            yield path


def long_functions(source: Source) -> Iterator[str]:
    """Functions that do not fit a screen."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield source.at(node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed")


def long_files(source: Source) -> Iterator[str]:
    """Files nobody reads to the end."""
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        yield source.at(lines, f"{lines} lines, {FILE_LINES_MAX} are allowed")


def impure_calls(source: Source) -> Iterator[str]:
    """Calls that reach for a clock, ambient randomness, a file, the terminal, or code in a string."""
    full_names = _imported_names(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = _dotted_name(node.func, full_names)
            if called in _IMPURE_BUILTINS or called.startswith(_IMPURE_PREFIXES):
                yield source.at(node.lineno, f"calls {called}")


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: `np` for numpy, `default_rng` for numpy.random.default_rng."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted_name(node: ast.expr, full_names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return full_names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value, full_names)}.{node.attr}"
    return "?"


def swallowed_exceptions(source: Source) -> Iterator[str]:
    """A bare `except:`, or a handler that takes every exception and does nothing."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield source.at(node.lineno, "bare except")
            elif _takes_everything(node.type) and all(_does_nothing(statement) for statement in node.body):
                yield source.at(node.lineno, "swallows every exception")


def _takes_everything(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"} for kind in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Continue)


def unfinished_work(source: Source) -> Iterator[str]:
    """Notes to oneself: what is not done is not there, or it is in the tracker."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := _UNFINISHED.search(line):
            yield source.at(number, found.group())


def pickles(source: Source) -> Iterator[str]:
    """Formats that run code when they are read."""
    for node in ast.walk(source.tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and not _is_false(node.value):
            yield source.at(node.value.lineno, "allows pickle")
        for module in modules:
            if module.split(".")[0] in _PICKLERS:
                yield source.at(node.lineno, f"imports {module}")


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def missing_docstrings(source: Source) -> Iterator[str]:
    """Modules, and public functions and classes of a module, that say nothing of themselves."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield source.at(1, "the module has no docstring")
    for node in source.tree.body:
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named and not node.name.startswith("_") and not ast.get_docstring(node):
            yield source.at(node.lineno, f"{node.name} has no docstring")


def machine_paths(source: Source) -> Iterator[str]:
    """Paths that exist on one machine only."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := _MACHINE_PATH.search(line):
            yield source.at(number, f"names a path of one machine: {found.group()}…")
