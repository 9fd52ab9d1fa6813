"""Settings: where the store and the checkpoints are. The one place that reads the environment.

Every field can be set as ``STEPWISER_<NAME>`` or in a ``.env`` file of the working folder.
"""

from __future__ import annotations

import getpass
from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.errors import StepWiserError
from engine.llm.server_address import server_address


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container user without a passwd entry
        return "someone"


class RefusedSettingsError(StepWiserError):
    """A setting that cannot be used."""


class Settings(BaseSettings):
    """``home`` holds the store, run logs and checkpoints; ``database_url`` moves the store elsewhere."""

    model_config = SettingsConfigDict(
        env_prefix="STEPWISER_",
        env_file=".env",
        extra="ignore",
        hide_input_in_errors=True,  # keys
    )

    home: Path = Field(default_factory=lambda: Path.cwd() / ".stepwiser")
    database_url: str = ""
    """SQLAlchemy URL; empty: SQLite in ``home``."""
    actor: str = Field(default_factory=_login_name)
    """Whom writes are attributed to on localhost, where names are an honour system."""
    stalled_after_s: float = 20.0
    """A running run whose heartbeat is older than this is shown as stalled."""

    llm_keys: dict[str, SecretStr] = Field(default_factory=dict)
    """API keys of model servers by address, as JSON: {"https://gpu-1:8000": "…"}. Each goes to its own server alone."""

    ray_address: str = ""
    """Job server of a Ray cluster, http://head:8265: runs are worked on there, not here. Empty: on this machine."""
    ray_python: str = ""
    """Python of this project on the cluster's nodes; empty: at the same path as here."""

    @field_validator("ray_address")
    @classmethod
    def _job_server(cls, address: str) -> str:
        return server_address(address) if address else ""

    @field_validator("llm_keys")
    @classmethod
    def _addresses(cls, keys: dict[str, SecretStr]) -> dict[str, SecretStr]:
        return {server_address(address): key for address, key in keys.items()}

    @property
    def store_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'stepwiser.db'}"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.home / "logs"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, its home made if need be. Raises RefusedSettingsError."""
    try:
        settings = Settings()
        settings.home = settings.home.expanduser().resolve()
        settings.home.mkdir(parents=True, exist_ok=True)
    except (ValueError, RuntimeError, OSError) as error:  # pydantic's own errors are ValueErrors
        raise RefusedSettingsError(f"settings (STEPWISER_… or .env): {error}") from error
    return settings
