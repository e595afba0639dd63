"""What an operator may set, each by an environment variable `CBWK_…`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

ENVIRONMENT_PREFIX = "CBWK_"


class Settings(BaseSettings):
    """One value per setting; an argument wins over the environment, the environment over the default."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes any free one")


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
