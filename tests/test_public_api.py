import importlib
import pkgutil
from types import ModuleType

import pytest

import cbwk_core
import service


def packages_with_an_interface() -> list[ModuleType]:
    """`cbwk_core`, and every other package of the project that lists what it exports."""
    found = [cbwk_core, service]
    for package in (cbwk_core, service):
        modules = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        found.extend(importlib.import_module(module.name) for module in modules if module.ispkg)
    return [package for package in found if package is cbwk_core or hasattr(package, "__all__")]


def exported_names(package: ModuleType) -> set[str]:
    return {
        name for name, value in vars(package).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }


@pytest.mark.parametrize("package", packages_with_an_interface(), ids=lambda package: package.__name__)
def test_a_package_lists_exactly_what_it_exports_and_each_name_once(package):
    assert sorted(package.__all__) == sorted(exported_names(package))
