from collections.abc import Iterator

import pytest

from tests import tidy


def violations(rule, sources):
    assert sources, "the rule was given no file"
    return [violation for source in sources for violation in rule(source)]


def test_every_function_fits_on_a_screen():
    assert violations(tidy.long_functions, tidy.python_sources()) == []


def test_no_file_is_too_long_to_read():
    assert violations(tidy.long_files, tidy.python_sources()) == []


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
    assert list(rule(tidy.Source("bad.py", text))) != []


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_a_rule_accepts_what_it_allows(rule, text):
    assert list(rule(tidy.Source("good.py", text))) == []


def test_every_rule_has_a_bad_and_a_good_example():
    rule_annotations = {"source": tidy.Source, "return": Iterator[str]}
    rules = {rule for rule in vars(tidy).values() if getattr(rule, "__annotations__", None) == rule_annotations}
    assert len(rules) == 8
    assert {rule for rule, _ in BAD} == {rule for rule, _ in GOOD} == rules
