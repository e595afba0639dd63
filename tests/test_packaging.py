"""The wheel: its files, its metadata, and what works with each extra. The tests need no package index."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser

import pytest
from packaging.requirements import Requirement

from tests import installations
from tests.containers import compose, copy_sources, instructions
from tests.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CBWK = "from service.__main__ import main\nsys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    copy_sources(folder / "source")  # since a build leaves files where it runs
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(folder / "source")], check=True, timeout=300)
    (built,) = folder.glob("cbwk-*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(files.read(name).decode())


def installation(wheel, metadata, folder, *extras):
    """The wheel and what its metadata says it needs, in a folder."""
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder)
    needed = installations.closure(metadata.get_all("Requires-Dist"), extras)
    installations.link(folder, installations.top_level_names(needed.values()))
    return folder


@pytest.fixture(scope="module")
def library(wheel, metadata, tmp_path_factory):
    return installation(wheel, metadata, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def server(wheel, metadata, tmp_path_factory):
    return installation(wheel, metadata, tmp_path_factory.mktemp("server"), "server")


def test_the_wheel_has_the_packages_the_migrations_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"cbwk_client", "cbwk_core", "service", f"cbwk-{PROJECT['version']}.dist-info"}
    for ending in (
        "cbwk_client/py.typed",
        "cbwk_core/py.typed",
        "service/py.typed",
        "service/dashboard/main.js",
        "service/migrations/env.py",
        ".dist-info/licenses/LICENSE",
    ):
        assert any(name.endswith(ending) for name in names), ending


def test_the_metadata_names_the_licence_the_authors_and_the_extras(metadata):
    assert (metadata["Version"], metadata["License-Expression"]) == (PROJECT["version"], "Apache-2.0")
    assert metadata["Author"] == "The cbwk authors"
    assert not [name for name in metadata if name in ("Author-email", "Maintainer", "Maintainer-email")]
    assert set(metadata.get_all("Provides-Extra")) == {"server", "plots", "parquet", "otel", "dev", "bench"}


def test_each_extra_has_its_own_requirements():
    extras = PROJECT["optional-dependencies"]
    names = {extra: {Requirement(text).name for text in extras[extra]} for extra in extras}
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == {
        "httpx", "joblib", "numpy", "scipy", "sniffio",
    }  # fmt: skip
    assert {"fastapi", "uvicorn", "sqlalchemy", "psycopg", "msgspec", "orjson"} <= names["server"]
    assert "matplotlib" in names["plots"]
    assert not names["server"] & {"matplotlib", "pyarrow", "mypy", "pytest", "river", "ruff"}


def test_the_version_is_the_same_everywhere():
    assert compose()["services"]["cbwk"]["image"] == f"cbwk:{PROJECT['version']}"
    operating = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert set(re.findall(r"cbwk:(\d+\.\d+\.\d+)", operating)) == {PROJECT["version"]}


def test_constraints_has_a_version_for_everything_an_installation_needs():
    extras = PROJECT["optional-dependencies"]
    direct = [*PROJECT["dependencies"], *(text for extra in extras if extra != "bench" for text in extras[extra])]
    needed = installations.closure(text for text in direct if Requirement(text).name != "cbwk")
    assert {canonical(name) for name in needed} <= pins("constraints.txt").keys()


def test_the_image_installs_what_the_service_needs_at_the_constrained_versions_by_digest():
    direct = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["server"], "setuptools"]
    needed = {canonical(name) for name in installations.closure(direct)}
    text = (ROOT / "requirements-image.txt").read_text(encoding="utf-8")
    head, *entries = re.sub(r" \\\n\s+", " ", text).splitlines()
    base = next(one.words[0] for one in instructions() if one.name == "FROM")
    assert f"Python {re.match(r'python:([0-9.]+)-', base)[1]}, Linux" in head
    assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", entry) for entry in entries)
    constrained, installed = pins("constraints.txt"), pins("requirements-image.txt")
    assert needed == installed.keys()
    assert installed == {name: constrained[name] for name in installed}


def pins(file):
    """Return the version of every package that a file names."""
    found = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return {canonical(name): version for name, version in found}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_library_and_the_client_need_no_extra(library):
    done = installations.run(library, installations.IMPORT_ALL, "cbwk_client", "cbwk_core")
    assert done.returncode == 0, done.stderr


def test_the_extra_server_is_all_that_the_service_needs(server):
    done = installations.run(server, installations.IMPORT_ALL, "service")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [[], ["--version"], ["serve"], ["demo"]])
def test_without_the_server_the_command_prints_what_to_install(library, arguments):
    done = installations.run(library, CBWK, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"cbwk: \w+ is not installed: pip install 'cbwk\[server\]'\n", done.stderr)


@pytest.mark.parametrize("command", ["demo", "reproduce", "simulate"])
def test_without_plots_the_commands_that_draw_print_what_to_install(server, command):
    done = installations.run(server, CBWK, command)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"cbwk: \w+ is not installed: pip install 'cbwk\[plots\]'\n", done.stderr)


def test_without_otel_a_service_with_traces_prints_what_to_install(server):
    code = f"import os; os.environ['CBWK_TRACES'] = 'true'\n{CBWK}"
    done = installations.run(server, code, "serve", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"cbwk: \w+ is not installed: pip install 'cbwk\[otel\]'\n", done.stderr)


def test_the_command_prints_the_version(server):
    done = installations.run(server, CBWK, "--version")
    assert (done.returncode, done.stdout) == (0, f"cbwk {PROJECT['version']}\n"), done.stderr
