"""Rules about the code itself. A rule reads one source file and yields its violations."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
CORE_FILE_LINES_MAX = 400
SERVICE_FILE_LINES_MAX = 500
# The files of the library that may be longer, each with the reason.
LONG_CORE_FILES: dict[str, str] = {}
# Names of modules and classes that do not say what the thing is, and the folders in which they are forbidden.
# fmt: off
UNCLEAR_NAMES = frozenset({
    "across", "asked", "awaited", "bell", "declared", "diverting", "envelope", "express", "keeping", "kept", "leaves",
    "left", "meanwhile", "one", "parts", "past", "plain", "saving", "standing", "told", "usual", "work",
})
# fmt: on
CLEAR_NAME_ROOTS = ("cbwk_core/", "cbwk_client/", "service/", "tests/")

_GENERATED = {"build", "data", "dist", "out", "__pycache__"}
_TRACKED_DOT_NAMES = {".ci", ".editorconfig", ".gitattributes", ".gitignore"}

# Each word is split in two, because the rules also read this file.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|mnt|root|Users|work(?:space)?)/\w|\b[A-Z]:\\(?:Users|Windows)\b")
_IMPURE_PREFIXES = ("numpy.random.", "time.")
_IMPURE_BUILTINS = {"open", "print", "eval", "exec", "input"}
_PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}


@dataclass(frozen=True)
class Source:
    """One text file. Its name is the path from the root of the project."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.text, filename=self.name)

    def at(self, line: int, what: str) -> str:
        """Format a violation as file:line, which editors recognise as a link."""
        return f"{self.name}:{line}: {what}"


def python_sources() -> list[Source]:
    """Return every Python file of the project."""
    return [source for source in text_sources() if source.name.endswith(".py")]


def library_sources() -> list[Source]:
    """Return every Python file of the library."""
    return [source for source in python_sources() if source.name.startswith("cbwk_core/")]


def service_sources() -> list[Source]:
    """Return every Python file of the service."""
    return [source for source in python_sources() if source.name.startswith("service/")]


def client_sources() -> list[Source]:
    """Return every Python file of the client."""
    return [source for source in python_sources() if source.name.startswith(("cbwk_client/", "service/client/"))]


def clearly_named_sources() -> list[Source]:
    """Return every Python file in which unclear names are forbidden."""
    return [source for source in python_sources() if source.name.startswith(CLEAR_NAME_ROOTS)]


def pure_sources() -> list[Source]:
    """Return the library without its simulations, which may read clocks and write files."""
    return [source for source in library_sources() if not source.name.startswith("cbwk_core/simulation/")]


@cache
def text_sources() -> list[Source]:
    """Return every text file of the project that is under version control. Each file is read once."""
    sources = []
    for path in sorted(_files_under(ROOT)):
        try:
            sources.append(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return sources


def _files_under(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        hidden = path.name.startswith(".") and path.name not in _TRACKED_DOT_NAMES
        if hidden or path.name in _GENERATED or path.name.endswith(".egg-info"):
            continue
        if path.is_dir():
            yield from _files_under(path)
        else:
            yield path


def long_functions(source: Source) -> Iterator[str]:
    """Find functions that do not fit on a screen."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield source.at(node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed")


def long_files(source: Source) -> Iterator[str]:
    """Find files that are too long to read."""
    lines = len(source.text.splitlines())
    if lines > FILE_LINES_MAX:
        yield source.at(lines, f"{lines} lines, {FILE_LINES_MAX} are allowed")


def long_core_files(source: Source) -> Iterator[str]:
    """Find files of the library that are too long and have no documented reason."""
    lines = len(source.text.splitlines())
    if lines > CORE_FILE_LINES_MAX and source.name not in LONG_CORE_FILES:
        yield source.at(lines, f"{lines} lines, {CORE_FILE_LINES_MAX} are allowed in the library")


def long_service_files(source: Source) -> Iterator[str]:
    """Find files of the service that are too long to read."""
    lines = len(source.text.splitlines())
    if lines > SERVICE_FILE_LINES_MAX:
        yield source.at(lines, f"{lines} lines, {SERVICE_FILE_LINES_MAX} are allowed in the service")


def unclear_names(source: Source) -> Iterator[str]:
    """Find modules, their tests, packages and classes with a name that does not say what they are."""
    for part in Path(source.name).with_suffix("").parts:
        if part.removeprefix("test_").strip("_").lower() in UNCLEAR_NAMES:
            yield source.at(1, f"the name {part} does not explain itself")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name.strip("_").lower() in UNCLEAR_NAMES:
            yield source.at(node.lineno, f"the name {node.name} does not explain itself")


def impure_calls(source: Source) -> Iterator[str]:
    """Find calls that use a clock, a global random generator, a file, the terminal, or code in a string."""
    full_names = _imported_names(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            called = _dotted_name(node.func, full_names)
            if called in _IMPURE_BUILTINS or called.startswith(_IMPURE_PREFIXES):
                yield source.at(node.lineno, f"calls {called}")


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name: `np` is numpy, `default_rng` is numpy.random.default_rng."""
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
    """Find a bare `except:`, and handlers that catch every exception and do nothing."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield source.at(node.lineno, "bare except")
            elif _catches_everything(node.type) and all(_does_nothing(statement) for statement in node.body):
                yield source.at(node.lineno, "swallows every exception")


def _catches_everything(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"} for kind in kinds)


def _does_nothing(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Continue)


def unfinished_work(source: Source) -> Iterator[str]:
    """Find notes about unfinished work. They belong in the issue tracker."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := _UNFINISHED.search(line):
            yield source.at(number, found.group())


def pickles(source: Source) -> Iterator[str]:
    """Find file formats that run code when they are read."""
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
    """Find modules, public functions and public classes without a docstring."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield source.at(1, "the module has no docstring")
    for node in source.tree.body:
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named and not node.name.startswith("_") and not ast.get_docstring(node):
            yield source.at(node.lineno, f"{node.name} has no docstring")


def machine_paths(source: Source) -> Iterator[str]:
    """Find paths that exist on one machine only."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if found := _MACHINE_PATH.search(line):
            yield source.at(number, f"names a path of one machine: {found.group()}…")


def import_graph(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return the modules among `sources` that each of them imports, also for types only and inside functions."""
    modules = {_module_of(source): source for source in sources}
    graph = {}
    for module, source in modules.items():
        package = module if source.name.endswith("__init__.py") else module.rpartition(".")[0]
        imported = {found for node in ast.walk(source.tree) for found in _imported_modules(node, package, modules)}
        graph[module] = imported - {module}
    return graph


def _module_of(source: Source) -> str:
    return source.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported_modules(node: ast.AST, package: str, modules: Mapping[str, Source]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    elif isinstance(node, ast.ImportFrom):
        origin = resolve_name("." * node.level + (node.module or ""), package)
        for alias in node.names:
            name = f"{origin}.{alias.name}"
            if name in modules or origin in modules:
                yield name if name in modules else origin


def import_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of one cycle, the first one also at the end; an empty list if there is no cycle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def constant_users(presets: Source, sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return the files other than `presets` that mention each of its constants."""
    mentioned = {source.name: _mentioned_names(source.tree) for source in sources if source.name != presets.name}
    return {
        constant: [name for name, names in mentioned.items() if constant in names]
        for constant in _constants(presets.tree)
    }


def _constants(tree: ast.Module) -> list[str]:
    """Return the upper-case names that a module assigns, without PRESETS and the versions of the rules (RULES_…)."""
    assignments = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    stored = [node for one in assignments for node in ast.walk(one) if isinstance(node, ast.Name)]
    names = [node.id for node in stored if isinstance(node.ctx, ast.Store)]
    return [name for name in names if name.isupper() and name != "PRESETS" and not name.startswith("RULES_")]


def _mentioned_names(tree: ast.Module) -> set[str]:
    """Return every name, attribute and imported name of a module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.name)
    return names


def missing_examples(package: ModuleType) -> Iterator[str]:
    """Find classes and functions in `__all__` of a package that have no docstring with an example."""
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        # A class without a docstring of its own would inherit one.
        text = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
        if (inspect.isclass(value) or inspect.isroutine(value)) and ">>>" not in (text or ""):
            yield f"{package.__name__}.{name} has no example"
