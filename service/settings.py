"""What an operator may set, each by an environment variable `CBWK_…`."""

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.fault import PATTERN

ENVIRONMENT_PREFIX = "CBWK_"


class Settings(BaseSettings):
    """One value per setting; an argument wins over the environment, the environment over the default."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes any free one")
    database_url: str = Field(
        default="sqlite:///./data/cbwk.db",
        min_length=1,
        repr=False,  # it may carry a password
        description="sqlite:///FILE for one process, postgresql://USER:PASSWORD@HOST/NAME for several",
    )
    pool_size: int = Field(
        default=5, ge=1, le=100, description="connections for reading; on PostgreSQL as many again for writing"
    )
    statement_timeout_ms: int = Field(
        default=5_000, ge=100, le=3_600_000, description="how long the database may take for one statement"
    )
    lock_timeout_ms: int = Field(
        default=500, ge=1, le=60_000, description="how long to wait for a campaign that another process has locked"
    )
    idle_in_transaction_timeout_ms: int = Field(
        default=5_000,
        ge=100,
        le=600_000,
        description="after how long PostgreSQL ends the transaction of a frozen process",
    )
    connect_timeout_seconds: int = Field(
        default=5, ge=2, le=60, description="how long to wait for a connection to the database"
    )
    admin_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        max_length=512,
        description="a key with the role admin, valid while set and never stored; at least 32 characters",
    )
    body_bytes_max: int = Field(
        default=2**20, ge=1024, le=2**30, description="how many bytes the body of a request may have"
    )
    batch_body_bytes_max: int = Field(
        default=2**23, ge=1024, le=2**30, description="how many bytes the body of a batch may have"
    )
    model_body_bytes_max: int = Field(
        default=2**26, ge=1024, le=2**29, description="how many bytes a model that is sent may have"
    )
    receive_seconds_max: int = Field(
        default=30, ge=1, le=3_600, description="how long a request may take to arrive; then its connection is closed"
    )
    request_deadline_ms: int = Field(
        default=1_000, ge=10, le=600_000, description="after how long a request that still waits is answered with 503"
    )
    queue_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="how many commands may wait; fewer if that many take too long"
    )
    memory_bytes_max: int = Field(
        default=2**29, ge=2**20, le=2**40, description="how many bytes of policies' states are kept in memory"
    )
    evaluations_max: int = Field(
        default=1, ge=1, le=64, description="how many evaluations run at once, each in a process of its own"
    )
    evaluation_seconds_max: int = Field(
        default=3_600, ge=1, le=86_400, description="how long an evaluation may take; then it has failed"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="from which level on log lines are written: debug, info, warning or error"
    )
    metrics_public: bool = Field(default=False, description="whether GET /metrics needs no key")
    fault_point: str | None = Field(
        default=None, pattern=f"^{PATTERN}$", description="for tests of recovery only: where the process ends itself"
    )


def environment_variable(setting: str) -> str:
    """The variable that carries a setting.

    >>> environment_variable("port")
    'CBWK_PORT'
    """
    return ENVIRONMENT_PREFIX + setting.upper()


def describe_environment() -> list[str]:
    """One line per environment variable: its name, its meaning, its default."""
    width = max(len(environment_variable(name)) for name in Settings.model_fields)
    return [
        f"{environment_variable(name):{width}}  {field.description} [default: {field.default}]"
        for name, field in Settings.model_fields.items()
    ]
