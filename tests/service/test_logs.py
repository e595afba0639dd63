import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from service.logs import HIDDEN, request_id

KEY = "cbwk_" + "A1b2" * 11


def test_a_line_has_a_level_a_time_and_its_fields(logged):
    structlog.get_logger("x").info("hold expired", campaign="summer", count=3)
    (line,) = logged()
    assert {name: line[name] for name in ("event", "level", "campaign", "count")} == {
        "event": "hold expired",
        "level": "info",
        "campaign": "summer",
        "count": 3,
    }
    assert line["at"].endswith("Z")
    assert line["process"] == os.getpid()


def test_lines_below_the_level_are_not_written(logged):
    structlog.get_logger().debug("small talk")
    logging.getLogger("uvicorn.access").info("small talk")
    assert logged() == []


def test_a_line_names_the_request_it_belongs_to_and_no_other(logged):
    token = request_id.set("r-1")
    structlog.get_logger().info("inside")
    logging.getLogger("sqlalchemy").warning("inside, too")
    request_id.reset(token)
    structlog.get_logger().info("outside")
    assert [line.get("request_id") for line in logged()] == ["r-1", "r-1", None]


def test_the_standard_library_logs_in_the_same_format(logged):
    try:
        raise ValueError("no such thing")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("failed %s", "twice")
    (line,) = logged()
    assert (line["event"], line["level"], line["logger"]) == ("failed twice", "error", "uvicorn.error")
    assert line["exception"].endswith("ValueError: no such thing")


def test_secrets_are_hidden_in_names_texts_and_nested_values(logged):
    log = structlog.get_logger()
    log.warning("got Authorization: Bearer abc.def-ghi", api_key="abc.def-ghi", nested={"password": "abc.def-ghi"})
    log.warning("x-api-key: abc.def-ghi", database_url="abc.def-ghi", urls=["postgresql://me:abc.def-ghi@host/name"])
    log.warning(f"a key {KEY} alone")
    lines = logged()
    assert len(lines) == 3
    for line in lines:
        assert "abc.def-ghi" not in str(line)
        assert KEY not in str(line)
        assert HIDDEN in str(line)


def test_a_traceback_is_written_without_the_values_of_its_frames(logged):
    def fail(password):
        raise RuntimeError(len(password))

    try:
        fail("abc" * 3)
    except RuntimeError:
        structlog.get_logger().exception("failed")
    (line,) = logged()
    assert "RuntimeError: 9" in line["exception"]
    assert "abcabcabc" not in line["exception"]


def test_values_that_json_cannot_express_are_written_as_text(logged):
    structlog.get_logger().info("odd", value=object, number=float("nan"), raw=b"\xff")
    (line,) = logged()
    assert line["raw"] == "b'\\xff'"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_log_that_cannot_be_written_does_not_stop_the_process():
    code = (
        "import logging, structlog; from service.logs import configure_logs; configure_logs();"
        "structlog.get_logger().warning('x' * 100_000); logging.getLogger('any').error('y'); print('went on')"
    )
    with Path("/dev/full").open("w") as full:
        child = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert child.stdout == "went on\n"
