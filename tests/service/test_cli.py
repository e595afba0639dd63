import socket

import pytest

from service.cli import main
from service.settings import Settings, environment_variable
from tests.service.server_process import running_server


@pytest.fixture(autouse=True)
def _no_settings_from_the_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(environment_variable(name), raising=False)


def complaint(capsys) -> str:
    """Returns the output, which must be one line on stderr."""
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert written.err.startswith("cbwk: ")
    return written.err


def test_no_command_at_all_shows_the_commands(capsys):
    assert main([]) == 0
    assert "serve" in capsys.readouterr().out


def test_the_help_of_serve_lists_every_environment_variable(capsys):
    assert main(["serve", "--help"]) == 0
    help_text = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        (line,) = [line for line in help_text.splitlines() if line.split()[:1] == [environment_variable(name)]]
        assert field.description in line
        assert str(field.default) in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--port", "abc"], "--port"),
        (["serve", "--port", "65536"], "--port"),
        (["serve", "--port", "-1"], "--port"),
        (["serve", "--host", ""], "--host"),
        (["serve", "--prot", "8000"], "--prot"),
        (["serve", "now"], "now"),
        (["sevre"], "sevre"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it_and_code_2(arguments, named, capsys):
    assert main(arguments) == 2
    assert named in complaint(capsys)


@pytest.mark.parametrize("value", ["abc", "65536", "-1", ""])
def test_a_wrong_environment_variable_is_one_line_that_names_it_and_code_2(value, capsys, monkeypatch):
    monkeypatch.setenv("CBWK_PORT", value)
    assert main(["serve"]) == 2
    assert "CBWK_PORT" in complaint(capsys)


def test_a_wrong_setting_is_never_repeated_since_it_may_be_a_secret(capsys, monkeypatch):
    monkeypatch.setenv("CBWK_PORT", "hunter2")
    assert main(["serve"]) == 2
    assert "hunter2" not in complaint(capsys)


def test_an_option_wins_over_the_environment(capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("CBWK_PORT", "not even a number")
        assert main(["serve", "--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in complaint(capsys)


def test_the_environment_wins_over_the_default(capsys, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("CBWK_PORT", str(port))
        assert main(["serve"]) == 1
    assert f"127.0.0.1:{port}" in complaint(capsys)


def test_a_second_server_on_the_same_port_is_refused_in_one_line(capsys):
    with running_server() as server:
        assert main(["serve", "--port", str(server.port)]) == 1
    assert complaint(capsys) == f"cbwk: cannot listen on 127.0.0.1:{server.port}: Address already in use\n"


def test_an_address_that_is_not_ours_is_refused_in_one_line(capsys):
    # 192.0.2.0/24 is reserved for documentation (RFC 5737): no machine has it.
    assert main(["serve", "--host", "192.0.2.1"]) == 1
    assert "192.0.2.1:8000" in complaint(capsys)
