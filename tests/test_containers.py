"""What can be tested of the containers where there is no Docker engine; docs/operating.md says what is not."""

import copy
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
import yaml
from compose_spec import PyCompose

from service.settings import Settings, environment_variable
from tests.containers import (
    INTERPOLATED,
    compose,
    copied,
    copy_sources,
    environment,
    gateway,
    healthcheck,
    instructions,
)
from tests.documents import KEY, ROOT
from tests.installations import IMPORT_ALL
from tests.service.server_process import CBWK, START_SECONDS_MAX, free_port

SETTINGS = {environment_variable(name) for name in Settings.model_fields}
COMPOSE = compose()
SERVICES = COMPOSE["services"]
SWITCH = "CBWK_TEST_IMAGE"
OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
PYTHON = re.match(r"python:(\d+\.\d+)-slim", next(one.text for one in instructions() if one.name == "FROM"))[1]
# What is left of the packages that the Dockerfile takes parts from.
USE_PRUNED = """
from scipy import linalg, sparse, special
from scipy.optimize import linprog
from service import assets
assert linprog([-1.0], A_ub=sparse.csr_array([[1.0]]), b_ub=[1.0]).x == [1.0]
assert all(path.is_file() for path in assets._paths().values())
"""
SIZE_BYTES_MAX = 250e6  # of what the image adds to its base


def accepted(document):
    """Whether the Compose specification allows it."""
    try:
        PyCompose.from_json(json.dumps(document))
    except ValueError:
        return False
    return True


def test_the_compose_file_is_what_the_specification_allows():
    assert PyCompose.from_json(json.dumps(COMPOSE)).service_names() == list(SERVICES)


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("cbwk", "prots", []),
        ("cbwk", "restart", "always-ish"),
        ("gateway", "depends_on", {"cbwk": {"condition": "service_merry"}}),
        ("postgres", "healthcheck", {"test": ["CMD", "true"], "interval": "5 parsecs"}),
    ],
)
def test_the_specification_refuses_a_slip_of_the_pen(service, key, value):
    changed = copy.deepcopy(COMPOSE)
    changed["services"][service][key] = value
    assert not accepted(changed)


def test_every_variable_of_ours_in_the_containers_is_a_setting():
    named = {name for service in SERVICES.values() for name in service.get("environment", {})} | environment().keys()
    ours = {name for name in named if name.startswith("CBWK_")}
    assert {"CBWK_DATABASE_URL", "CBWK_ADMIN_KEY", "CBWK_HOST", "CBWK_PORT"} <= ours <= SETTINGS


def test_what_the_compose_file_wants_from_outside_is_said_at_its_top_and_has_a_message():
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    top = text.partition("\nx-")[0]
    wanted = {found["name"]: found.group() for found in INTERPOLATED.finditer(text)}
    assert wanted.keys() == {"CBWK_ADMIN_KEY", "POSTGRES_PASSWORD"}
    assert all(name in top and ":?" in found for name, found in wanted.items())


def test_the_settings_of_the_compose_file_are_taken_by_the_service(monkeypatch):
    for name, value in SERVICES["cbwk"]["environment"].items():
        monkeypatch.setenv(name, INTERPOLATED.sub("0123456789abcdef0123456789abcdef", value))
    settings = Settings()
    assert settings.database_url.endswith("@postgres/cbwk")
    user = SERVICES["postgres"]["environment"]
    assert settings.database_url.startswith(f"postgresql://{user['POSTGRES_USER']}:")
    assert settings.database_url.endswith(f"/{user['POSTGRES_DB']}")


def test_the_kubernetes_example_runs_our_image_with_our_settings_and_without_the_variables_of_its_service(monkeypatch):
    parts = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yml").read_text(encoding="utf-8"))
    deployment, service, ingress = parts
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == SERVICES["cbwk"]["image"]
    assert {each["name"] for each in container["env"]} <= SETTINGS
    ports = {container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")}
    assert ports == {container["ports"][0]["containerPort"]} == {service["spec"]["ports"][0]["port"]}
    (rule,) = ingress["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == service["metadata"]["name"]
    # Kubernetes sets this variable in every pod that has links to a Service with our name.
    monkeypatch.setenv(f"{service['metadata']['name'].upper()}_PORT", "tcp://10.96.0.17:8000")
    with pytest.raises(ValueError, match="tcp://"):
        Settings()
    assert pod["enableServiceLinks"] is False


def test_what_waits_for_a_healthy_service_waits_for_one_that_has_a_check():
    ours = {name for name, service in SERVICES.items() if service["image"] == SERVICES["cbwk"]["image"]}
    for name, service in SERVICES.items():
        for other, terms in service.get("depends_on", {}).items():
            assert terms["condition"] == "service_healthy"
            assert other in ours or "healthcheck" in SERVICES[other], f"{name} waits for {other}"
            assert not SERVICES[other].get("profiles") or SERVICES[other]["profiles"] == service.get("profiles")


def test_volumes_and_configurations_that_are_used_are_declared():
    for service in SERVICES.values():
        assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= COMPOSE["volumes"].keys()
        assert {config["source"] for config in service.get("configs", [])} <= COMPOSE["configs"].keys()


def test_ports_are_open_to_this_machine_only_and_only_one_service_builds_the_image():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    assert [name for name, service in SERVICES.items() if "build" in service] == ["cbwk"]


def test_only_images_of_others_are_pulled_and_all_name_their_minor_version():
    policies = {name: service["pull_policy"] for name, service in SERVICES.items()}
    ours = {name: "build" if "build" in service else "never" for name, service in SERVICES.items()}
    assert policies == ours | {"postgres": "missing", "gateway": "missing"}
    based_on = {one.words[0] for one in instructions() if one.name == "FROM"}
    for image in based_on | {service["image"] for service in SERVICES.values()}:
        assert re.fullmatch(r"\w+:\d+\.\d+.*", image), image


def test_the_file_with_the_secrets_is_not_committed_and_is_made_for_its_owner_alone():
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    made = [line for line in OPERATING.splitlines() if "> .env" in line]
    assert made
    assert all("umask 077" in line for line in made)


def test_the_profile_has_three_services_and_the_gateway_knows_them_all():
    ours = [name for name, service in SERVICES.items() if service["image"] == SERVICES["cbwk"]["image"]]
    assert len(ours) == 3
    assert all(SERVICES[name]["init"] for name in ours)
    port = environment()["CBWK_PORT"]
    servers = re.findall(r"^    server \S+ (\S+)$", gateway(), re.MULTILINE)
    assert servers == [f"{name}:{port}" for name in ours]
    (published,) = SERVICES["gateway"]["ports"]
    assert f"    bind :{published.rpartition(':')[2]}\n" in gateway()
    assert SERVICES["gateway"]["depends_on"].keys() == set(ours)


def test_the_image_runs_one_process_as_nobody_special_and_says_how_it_is():
    last = [one for one in instructions() if one.stage == 1]
    names = [one.name for one in last]
    assert names[-1] == "CMD"
    assert names.count("CMD") == names.count("HEALTHCHECK") == names.count("USER") == 1
    uid, _, gid = next(one.text for one in last if one.name == "USER").partition(":")
    assert int(uid) > 0 < int(gid)
    (made,) = [one.text for one in last if one.name == "RUN"]
    assert f"groupadd --system --gid {gid} cbwk" in made
    assert f"useradd --system --uid {uid} --gid {gid} --no-create-home cbwk" in made
    assert f"install --directory --owner {uid} --group {gid} --mode 700 /data" in made
    assert len({one.words[0] for one in instructions() if one.name == "FROM"}) == 1


def test_everything_the_image_is_built_from_is_there_and_nothing_else_is_sent():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert let_in == {source for source, _ in copied()}
    assert all((ROOT / source).exists() for source in let_in)
    assert not any(fnmatch.fnmatch(name, pattern) for name in ("data", ".env", ".git", ".venv") for pattern in let_in)


def image_environment(folder, programs, port):
    """The environment of the image, with its folders inside this one."""
    inside = {name: value.replace("/opt/cbwk/bin", str(programs)) for name, value in environment().items()}
    inside["PATH"] = inside["PATH"].replace("$PATH", os.environ["PATH"])
    inside["CBWK_DATABASE_URL"] = inside["CBWK_DATABASE_URL"].replace("/data", str(folder / "data"))
    # Docker passes the proxy of its client to every container; nothing listens at this one.
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), f"http://127.0.0.1:{free_port()}")
    return inside | proxy | {"CBWK_HOST": "127.0.0.1", "CBWK_PORT": str(port), "CBWK_ADMIN_KEY": KEY}


def serve_as_the_image_does(folder, programs):
    """Run CMD until HEALTHCHECK says it is well, then stop it as Docker does; the check must fail before and after."""
    (folder / "data").mkdir()
    inside = image_environment(folder, programs, free_port())
    (command,) = [one.words for one in instructions() if one.name == "CMD"]

    def is_well():
        check = healthcheck()
        done = subprocess.run(check, env=inside, cwd=folder / "data", capture_output=True, check=False, timeout=30)
        return done.returncode == 0

    assert not is_well()
    found = shutil.which(command[0], path=inside["PATH"])
    process = subprocess.Popen([found, *command[1:]], env=inside, cwd=folder / "data", stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not is_well():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
    assert not is_well()
    assert (folder / "data" / "cbwk.db").is_file()


def test_the_command_of_the_image_serves_and_its_health_check_tells(tmp_path):
    serve_as_the_image_does(tmp_path, CBWK.parent)


@pytest.mark.skipif(SWITCH not in os.environ, reason=f"installs everything anew, which takes minutes: set {SWITCH}=1")
def test_the_image_can_be_built_from_what_it_copies_and_is_small(tmp_path):
    python = shutil.which(f"python{PYTHON}")
    if python is None:
        pytest.skip(f"the digests of the image are for Python {PYTHON}, which is not in the PATH")
    build, target = tmp_path / "build", tmp_path / "opt"
    copy_sources(build)
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    path = os.pathsep.join([os.path.dirname(python), os.environ["PATH"]])
    for one in instructions():
        if one.name == "RUN" and one.stage == 0:
            command = one.text.replace("/opt/cbwk", str(target))
            subprocess.run(["sh", "-euc", command], cwd=build, env=outside | {"PATH": path}, check=True)
    shutil.rmtree(build)  # the image has the installed package only
    files = [file.lstat() for file in target.rglob("*")]
    assert sum(file.st_size for file in files) < SIZE_BYTES_MAX
    program = [
        str(target / "bin" / "python"),
        "-I",
        "-c",
        f"import sys\n{IMPORT_ALL}{USE_PRUNED}",
        "cbwk_core",
        "service",
    ]
    subprocess.run(program, check=True)
    serve_as_the_image_does(tmp_path, target / "bin")
