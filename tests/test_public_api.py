import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import cbwk_client
import cbwk_core
import service
from tests import tidy


def packages_with_an_interface() -> list[ModuleType]:
    """Every package of the project that is more than a folder with a docstring."""
    roots = (cbwk_client, cbwk_core, service)
    found = list(roots)
    for package in roots:
        modules = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        found.extend(importlib.import_module(module.name) for module in modules if module.ispkg)
    return [package for package in found if any(not is_docstring(statement) for statement in statements(package))]


def statements(package: ModuleType) -> list[ast.stmt]:
    return ast.parse(Path(package.__file__ or "").read_text(encoding="utf-8")).body


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def only_hands_on(package: ModuleType) -> bool:
    """Whether the package does nothing but to import and to list, so that each of its names is meant for others."""
    assigned = [one for one in statements(package) if not is_docstring(one) and not isinstance(one, ast.ImportFrom)]
    return all(isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__" for one in assigned)


def exported_names(package: ModuleType) -> set[str]:
    return {
        name for name, value in vars(package).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@cache
def imports() -> list[tuple[str, str, str]]:
    """Every name that a file of the project imports: the file, from where, the name."""
    return [
        (source.name, node.module or "", alias.name)
        for source in tidy.python_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and not node.level
        for alias in node.names
    ]


def taken_names(package: ModuleType) -> set[str]:
    """What the rest of the project imports from the package itself, not from one of its modules."""
    folder = package.__name__.replace(".", "/") + "/"
    taken = {name for file, module, name in imports() if module == package.__name__ and not file.startswith(folder)}
    return taken - {module.name for module in pkgutil.iter_modules(package.__path__)} - {"*", "__all__"}


PACKAGES = packages_with_an_interface()
HANDING_ON = [package for package in PACKAGES if only_hands_on(package)]
WORKING = [package for package in PACKAGES if not only_hands_on(package)]


@pytest.mark.parametrize("package", HANDING_ON, ids=lambda package: package.__name__)
def test_a_package_that_hands_on_names_lists_all_of_them_and_each_once(package):
    assert sorted(package.__all__) == sorted(exported_names(package))


@pytest.mark.parametrize("package", WORKING, ids=lambda package: package.__name__)
def test_a_package_that_does_something_itself_lists_exactly_what_others_take_from_it(package):
    assert sorted(package.__all__) == sorted(taken_names(package))
    assert set(package.__all__) <= exported_names(package)


@pytest.mark.parametrize("package", HANDING_ON, ids=lambda package: package.__name__)
def test_nothing_is_taken_from_a_package_that_it_does_not_list(package):
    assert taken_names(package) <= set(package.__all__)


def test_the_client_the_engine_and_the_schemas_are_among_the_packages():
    names = {package.__name__ for package in PACKAGES}
    assert {"cbwk_client", "cbwk_core", "service.engine", "service.schemas", "service.reads"} <= names
