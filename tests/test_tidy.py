import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest

import cbwk_core
from tests import tidy
from tests.tidy import Source


def violations(rule, sources):
    assert sources, "the rule was given no file"
    return [violation for source in sources for violation in rule(source)]


def test_every_function_fits_on_a_screen():
    assert violations(tidy.long_functions, tidy.python_sources()) == []


def test_no_file_is_too_long_to_read():
    assert violations(tidy.long_files, tidy.python_sources()) == []


def test_no_file_of_the_library_is_too_long_to_read():
    assert violations(tidy.long_core_files, tidy.library_sources()) == []


def test_no_file_of_the_service_is_too_long_to_read():
    assert violations(tidy.long_service_files, tidy.service_sources()) == []


def test_every_long_file_of_the_library_exists_and_needs_its_exception():
    lines = {source.name: len(source.text.splitlines()) for source in tidy.library_sources()}
    assert all(reason and lines[name] > tidy.CORE_FILE_LINES_MAX for name, reason in tidy.LONG_CORE_FILES.items())


def test_modules_and_classes_have_names_that_explain_themselves():
    assert violations(tidy.unclear_names, tidy.clearly_named_sources()) == []


def test_the_library_has_no_import_cycle_not_even_for_types():
    graph = tidy.import_graph(tidy.library_sources())
    assert {"cbwk_core", "cbwk_core.features", "cbwk_core.simulation"} <= set(graph)
    assert "cbwk_core.arrays" in graph["cbwk_core.features.joint"]
    assert tidy.import_cycle(graph) == []


def test_the_service_has_no_import_cycle_not_even_for_types():
    graph = tidy.import_graph(tidy.service_sources())
    assert {"service.app", "service.engine", "service.reads", "service.store.tables"} <= set(graph)
    assert "service.store.database" in graph["service.app"]
    assert tidy.import_cycle(graph) == []


def test_the_client_has_no_import_cycle_not_even_for_types():
    graph = tidy.import_graph(tidy.client_sources())
    assert any(graph.values())
    assert tidy.import_cycle(graph) == []


def test_exactly_one_module_uses_each_constant_of_the_presets():
    (presets,) = [source for source in tidy.library_sources() if source.name == "cbwk_core/presets.py"]
    users = tidy.constant_users(presets, tidy.pure_sources())
    assert users
    assert {constant: names for constant, names in users.items() if len(names) != 1} == {}


def core_packages() -> list[ModuleType]:
    modules = pkgutil.walk_packages(cbwk_core.__path__, "cbwk_core.")
    return [cbwk_core, *(importlib.import_module(module.name) for module in modules if module.ispkg)]


@pytest.mark.parametrize("package", core_packages(), ids=lambda package: package.__name__)
def test_every_public_class_and_function_of_the_library_has_an_example(package):
    assert list(tidy.missing_examples(package)) == []


def test_the_library_calls_no_clock_no_file_no_terminal_and_no_ambient_randomness():
    assert violations(tidy.impure_calls, tidy.pure_sources()) == []


def test_no_exception_is_swallowed():
    assert violations(tidy.swallowed_exceptions, tidy.python_sources()) == []


def test_no_file_has_a_note_about_unfinished_work():
    assert violations(tidy.unfinished_work, tidy.python_sources()) == []


def test_nothing_is_pickled():
    assert violations(tidy.pickles, tidy.python_sources()) == []


def test_every_public_function_and_class_of_the_library_has_a_docstring():
    assert violations(tidy.missing_docstrings, tidy.library_sources()) == []


def test_no_text_file_names_a_path_of_one_machine():
    assert violations(tidy.machine_paths, tidy.text_sources()) == []


def test_the_rules_read_the_project_and_not_its_environment():
    names = {source.name for source in tidy.text_sources()}
    assert {"Makefile", ".ci/run", "README.md", "service/app.py", "tests/tidy.py"} <= names
    assert not [name for name in names if name.startswith((".venv/", ".git/"))]


def test_the_simulations_are_the_only_impure_part_of_the_library():
    impure = {source.name for source in tidy.library_sources()} - {source.name for source in tidy.pure_sources()}
    assert all(name.startswith("cbwk_core/simulation/") for name in impure)


def lines_of_function(count: int) -> str:
    return "def long():\n" + "    pass\n" * (count - 1)


BAD = [
    (tidy.long_functions, lines_of_function(71)),
    (tidy.long_functions, "class A:\n    async def f(self):\n" + "        pass\n" * 70),
    (tidy.long_files, "\n" * 601),
    (tidy.long_core_files, "\n" * 401),
    (tidy.long_service_files, "\n" * 501),
    (tidy.unclear_names, Source("cbwk_core/plain.py", "")),
    (tidy.unclear_names, Source("cbwk_core/parts/__init__.py", "")),
    (tidy.unclear_names, Source("tests/service/test_leaves.py", "")),
    (tidy.unclear_names, "class Kept: ..."),
    (tidy.unclear_names, "def f():\n    class _Usual: ..."),
    (tidy.impure_calls, "import numpy as np\nrng = np.random.default_rng(1)"),
    (tidy.impure_calls, "import numpy\nnumpy.random.seed(1)"),
    (tidy.impure_calls, "from numpy.random import default_rng as new\nnew(1)"),
    (tidy.impure_calls, "from numpy import random\nrandom.random()"),
    (tidy.impure_calls, "import time\ndef f():\n    return time.monotonic()"),
    (tidy.impure_calls, "from time import sleep\nsleep(1)"),
    *[(tidy.impure_calls, f"{name}('x')") for name in ("open", "print", "eval", "exec", "input")],
    (tidy.swallowed_exceptions, "try:\n    f()\nexcept:\n    raise"),
    (tidy.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    pass"),
    (tidy.swallowed_exceptions, "try:\n    f()\nexcept (ValueError, BaseException) as e:\n    ..."),
    (tidy.swallowed_exceptions, "while f():\n    try:\n        g()\n    except Exception:\n        continue"),
    *[(tidy.unfinished_work, f"x = 1  # {word}: more") for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX")],
    (tidy.pickles, "import pickle"),
    (tidy.pickles, "def f():\n    from pickle import loads"),
    (tidy.pickles, "import numpy as np\nnp.load('x', allow_pickle=True)"),
    (tidy.missing_docstrings, "def public():\n    return 1"),
    (tidy.missing_docstrings, "'''A module.'''\nasync def public():\n    return 1"),
    (tidy.missing_docstrings, "'''A module.'''\nclass Public:\n    pass"),
    *[(tidy.machine_paths, f"data = '/{top}/someone/x'") for top in ("home", "root", "Users", "mnt")],
    (tidy.machine_paths, "see C:" + "\\Users"),
]

GOOD = [
    (tidy.long_functions, lines_of_function(70)),
    (tidy.long_files, "\n" * 600),
    (tidy.long_core_files, "\n" * 400),
    (tidy.long_service_files, "\n" * 500),
    (tidy.unclear_names, Source("cbwk_core/arrays.py", "class Explained: ...\nplain = one = 1\ndef left(): ...")),
    (tidy.impure_calls, "import numpy as np\ndef f(rng: np.random.Generator):\n    return rng.random()"),
    (tidy.impure_calls, "def f(state):\n    '''>>> print(f(1))'''\n    return state.open()"),
    (tidy.swallowed_exceptions, "try:\n    f()\nexcept ValueError:\n    pass"),
    (tidy.swallowed_exceptions, "try:\n    f()\nexcept Exception:\n    g()\n    raise"),
    (tidy.unfinished_work, "method = 'x' # a Todorov matrix"),
    (tidy.pickles, "import numpy as np\nnp.load('x', allow_pickle=False)"),
    (tidy.missing_docstrings, "'''A module.'''\ndef _private():\n    return 1\ndef public():\n    '''One.'''"),
    (tidy.missing_docstrings, ""),
    (tidy.machine_paths, "GET /campaigns/home/x and " + "https://example.org/home/x, #!/usr/bin/env"),
]


@pytest.mark.parametrize(("rule", "text"), BAD)
def test_a_rule_finds_what_it_forbids(rule, text):
    assert list(rule(text if isinstance(text, Source) else Source("bad.py", text))) != []


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_a_rule_accepts_what_it_allows(rule, text):
    assert list(rule(text if isinstance(text, Source) else Source("good.py", text))) == []


def test_a_documented_reason_allows_a_long_file_of_the_library(monkeypatch):
    monkeypatch.setitem(tidy.LONG_CORE_FILES, "good.py", "one class with a method per formula")
    assert list(tidy.long_core_files(Source("good.py", "\n" * 401))) == []
    assert list(tidy.long_core_files(Source("bad.py", "\n" * 401))) != []


A, B, C = "p.a", "p.b", "p.sub.c"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import p.b", {B}),
        ("import p.b as other", {B}),
        ("from p import b", {B}),
        ("from p.b import anything", {B}),
        ("from p import anything", {"p"}),
        ("from p.sub.c import anything", {C}),
        ("from . import b", {B}),
        ("from .sub import c", {C}),
        ("from .sub import anything", {"p.sub"}),
        ("if TYPE_CHECKING:\n    from p.b import B", {B}),
        ("def f():\n    from p.b import B", {B}),
        ("import numpy\nfrom q.b import anything\nfrom p.a import itself", set()),
        ("text = 'import p.b'", set()),
    ],
)
def test_the_import_graph_has_every_import(text, found):
    others = [Source(name, "") for name in ("p/__init__.py", "p/b.py", "p/sub/__init__.py", "p/sub/c.py")]
    assert tidy.import_graph([Source("p/a.py", text), *others])[A] == found


def test_relative_imports_start_at_the_package_of_the_file():
    others = [Source(name, "") for name in ("p/__init__.py", "p/b.py", "p/sub/b.py")]
    graph = tidy.import_graph([Source("p/sub/__init__.py", "from . import b\nfrom .. import b as above"), *others])
    assert graph["p.sub"] == {B, "p.sub.b"}


@pytest.mark.parametrize(
    ("graph", "members"),
    [
        ({A: {B}, B: {A}}, {A, B}),
        ({A: {B}, B: {C}, C: {A}, "p.d": {A}}, {A, B, C}),
        ({A: {B, C}, B: {C}, C: set()}, set()),
        ({}, set()),
    ],
)
def test_a_cycle_of_the_import_graph_is_found(graph, members):
    assert set(tidy.import_cycle(graph)) == members


def test_an_import_for_types_or_inside_a_function_closes_a_cycle():
    types = Source("p/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B")
    inside = Source("p/b.py", "def f():\n    from p import a")
    root = Source("p/__init__.py", "")
    assert set(tidy.import_cycle(tidy.import_graph([types, inside, root]))) == {A, B}
    assert tidy.import_cycle(tidy.import_graph([types, Source("p/b.py", "from q import a"), root])) == []


PRESETS = Source(
    "p/presets.py", "STEP = 0.1\nLOW, HIGH = 1, 2\nWIDTH: float = STEP\nPRESETS = {}\nRULES_KNOWN = 3\nlower = 4"
)


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("from p.presets import STEP", {"STEP"}),
        ("from p.presets import STEP as size", {"STEP"}),
        ("from p import presets\ndef f():\n    return presets.LOW + presets.HIGH", {"LOW", "HIGH"}),
        ("from p.presets import *\nx = WIDTH", {"WIDTH"}),
        ("from p.presets import PRESETS, RULES_KNOWN, lower\n# STEP\nTEXT = 'HIGH'\nSTEPS = 1", set()),
    ],
)
def test_the_users_of_a_constant_are_found(text, constants):
    users = tidy.constant_users(
        PRESETS, [PRESETS, Source("p/a.py", text), Source("p/b.py", "from p.presets import HIGH")]
    )
    assert set(users) == {"STEP", "LOW", "HIGH", "WIDTH"}
    assert {constant for constant, names in users.items() if "p/a.py" in names} == constants
    assert [constant for constant, names in users.items() if "p/b.py" in names] == ["HIGH"]


def with_example() -> int:
    """Return 1.

    >>> with_example()
    1
    """
    return 1


def without_example() -> int:
    """Return 1."""
    return 1


class Documented:
    """A class.

    >>> Documented() is None
    False
    """


class Inheriting(Documented):
    pass


class Pair(NamedTuple):
    left: int


@pytest.mark.parametrize("bad", [without_example, Inheriting, Pair, lambda: 1], ids=lambda bad: bad.__name__)
def test_a_public_class_or_function_without_an_example_is_found(bad):
    package = ModuleType("package")
    package.__dict__.update(
        bad=bad, good=with_example, Good=Documented, LIMIT=3, Alias=int | str, hidden=without_example
    )
    package.__dict__["__all__"] = ["Alias", "Good", "LIMIT", "bad", "good"]
    assert list(tidy.missing_examples(package)) == ["package.bad has no example"]
    package.__dict__["__all__"].remove("bad")
    assert list(tidy.missing_examples(package)) == []


def test_every_rule_has_a_bad_and_a_good_example():
    rule_annotations = {"source": Source, "return": Iterator[str]}
    rules = {rule for rule in vars(tidy).values() if getattr(rule, "__annotations__", None) == rule_annotations}
    assert len(rules) == 11
    assert {rule for rule, _ in BAD} == {rule for rule, _ in GOOD} == rules
