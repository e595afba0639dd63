"""The settings of the service, each an environment variable `CBWK_…`."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.fault import PATTERN
from service.limits import DECIDE_WORK_MAX, LABELS_MAX

ENVIRONMENT_PREFIX = "CBWK_"
# Variables that are no settings of the service: of commands that ask a running one, and of its tests.
OF_COMMANDS = ("CBWK_URL", "CBWK_API_KEY")
OF_TESTS = ("CBWK_TEST_", "CBWK_REWRITE_DOCS")
SETTINGS_HINT = "`cbwk serve --help` lists them"


class Settings(BaseSettings):
    """The settings; an argument overrides the environment, the environment overrides the default."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 for any free port")
    database_url: str = Field(
        default="sqlite:///./data/cbwk.db",
        min_length=1,
        repr=False,  # it may contain a password
        description="sqlite:///FILE for one process, postgresql://USER:PASSWORD@HOST[,HOST…]/NAME for several",
    )
    pool_size: int = Field(
        default=5, ge=1, le=100, description="connections for reads; on PostgreSQL the same number again for writes"
    )
    statement_timeout_ms: int = Field(
        default=5_000, ge=100, le=3_600_000, description="timeout of one database statement"
    )
    lock_timeout_ms: int = Field(
        default=500, ge=1, le=60_000, description="timeout for the lock of a campaign that another process holds"
    )
    idle_in_transaction_timeout_ms: int = Field(
        default=5_000,
        ge=100,
        le=600_000,
        description="PostgreSQL ends the open transaction of a frozen process after this time",
    )
    connect_timeout_seconds: int = Field(default=5, ge=2, le=60, description="timeout of a connection to the database")
    admin_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        max_length=512,
        description="a key with the role admin, valid while it is set, never stored; at least 32 characters",
    )
    body_bytes_max: int = Field(default=2**20, ge=1024, le=2**30, description="maximum size of a request body")
    batch_body_bytes_max: int = Field(default=2**23, ge=1024, le=2**30, description="maximum size of a batch body")
    model_body_bytes_max: int = Field(default=2**26, ge=1024, le=2**29, description="maximum size of an imported model")
    receive_seconds_max: int = Field(
        default=30,
        ge=1,
        le=3_600,
        description="maximum time to receive a request, or for a client to read 32 KiB of its answer",
    )
    request_deadline_ms: int = Field(
        default=1_000, ge=10, le=600_000, description="maximum time to answer a request; after it the answer is 503"
    )
    queue_max: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="maximum number of queued commands; fewer are admitted if they would miss the deadline",
    )
    decide_work_max: int = Field(
        default=DECIDE_WORK_MAX,
        ge=1_000,
        le=10**12,
        description="maximum of items × arms × features² of one request; many such requests wait for each other",
    )
    memory_bytes_max: int = Field(default=2**29, ge=2**20, le=2**40, description="memory for the states of policies")
    evaluations_max: int = Field(
        default=1, ge=1, le=64, description="maximum number of concurrent evaluations; each runs in its own process"
    )
    evaluation_seconds_max: int = Field(
        default=3_600, ge=1, le=86_400, description="maximum time of an evaluation; after it the evaluation has failed"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged: debug, info, warning or error"
    )
    access_log: bool = Field(default=False, description="whether each answered request is a line of the log")
    slow_transaction_ms: int = Field(
        default=500, ge=1, le=3_600_000, description="transactions that take longer are logged as slow"
    )
    metrics_campaigns_max: int = Field(
        default=LABELS_MAX, ge=1, le=100_000, description="campaigns with labels of their own in metrics"
    )
    metrics_public: bool = Field(default=False, description="whether GET /metrics is open without a key")
    traces: bool = Field(
        default=False, description="whether OpenTelemetry gets a span for each request; needs the extra otel"
    )
    webhook_private: bool = Field(
        default=False, description="whether webhooks may have addresses inside private networks, and http://"
    )
    fault_point: str | None = Field(
        default=None, pattern=f"^{PATTERN}$", description="only for recovery tests: where the process ends or freezes"
    )

    def body_bytes_max_of(self, path: str) -> int:
        """Return the maximum size of a request body for this path."""
        if path.endswith("/model"):
            return self.model_body_bytes_max
        return self.batch_body_bytes_max if path.endswith("/batch") else self.body_bytes_max


def environment_variable(setting: str) -> str:
    """Return the environment variable of a setting.

    >>> environment_variable("port")
    'CBWK_PORT'
    """
    return ENVIRONMENT_PREFIX + setting.upper()


def unknown_variables(names: Iterable[str]) -> list[str]:
    """Return one line for each variable `CBWK_…` that is no setting, with the one that was probably meant.

    >>> unknown_variables(["PATH", "CBWK_PORT", "CBWK_PROT", "CBWK_TEST_EXAMPLES"])
    ['CBWK_PROT is no setting; did you mean CBWK_PORT?']
    """
    known = [*map(environment_variable, Settings.model_fields), *OF_COMMANDS]
    found = (name for name in sorted(names) if name.startswith(ENVIRONMENT_PREFIX) and name not in known)
    lines = []
    for name in found:
        if not name.startswith(OF_TESTS):
            near = get_close_matches(name, known, 1)
            lines.append(f"{name} is no setting; {f'did you mean {near[0]}?' if near else SETTINGS_HINT}")
    return lines


def describe_environment() -> list[str]:
    """Return one line per environment variable: its name, its meaning, its default."""
    width = max(len(environment_variable(name)) for name in Settings.model_fields)
    return [
        f"{environment_variable(name):{width}}  {field.description} [default: {field.default}]"
        for name, field in Settings.model_fields.items()
    ]
