"""The one settings model. Values are checked here; where they come from is `load.py`'s business."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pdmuxd.daemon.settings import places
from pdmuxd.daemon.settings.engine import EngineSection
from pdmuxd.daemon.settings.planes import AdminSection, DataSection, HttpSection
from pdmuxd.daemon.settings.tracing import TracingSection
from pdmuxd.daemon.settings.values import (
    PROXY_ADDRESSES,
    Number,
    WholeNumber,
    check_path,
    is_loopback,
    not_allowed,
    too_many,
)

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]

_Path = Annotated[Path, AfterValidator(check_path)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class LogSection(_Section):
    """What the daemon writes to standard error."""

    level: LogLevel = Field("info", description="The least severe messages that are written.")
    format: LogFormat = Field("console", description="For people or for log collectors.")


class HistorySection(_Section):
    """How long what was served is kept in the database."""

    minutes_kept_days: Annotated[WholeNumber, Field(ge=1, le=60)] = Field(
        2, description="Days for which counts are kept by the minute."
    )
    hours_kept_days: Annotated[WholeNumber, Field(ge=31, le=800)] = Field(
        92, description="Days for which they are kept by the hour, with marks and alarms."
    )
    days_kept_days: Annotated[WholeNumber, Field(ge=31, le=8000)] = Field(
        800, description="Days for which they are kept by the day."
    )
    requests_kept_days: Annotated[WholeNumber, Field(ge=1, le=800)] = Field(
        7, description="Days for which the ledger keeps each request."
    )
    requests_max_rows: Annotated[WholeNumber, Field(ge=1000, le=1_000_000_000)] = Field(
        2_000_000, description="Requests that the ledger keeps at most, the newest; a million takes 200 MB."
    )


class Settings(BaseSettings):
    """All settings, checked. `load_settings` reads files and the environment; this knows nothing of them."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    state_dir: _Path | None = Field(
        None,
        description="What must survive a restart. Unset: $STATE_DIRECTORY, else pdmuxd in $XDG_STATE_HOME, "
        "else ~/.local/state/pdmuxd.",
    )
    runtime_dir: _Path | None = Field(
        None,
        description="Sockets. Unset: $RUNTIME_DIRECTORY, else run in state_dir, or a private directory in "
        "/tmp if that path is too long for a socket.",
    )
    database_url: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://")] | None = Field(
        None,
        repr=False,
        description="Of a PostgreSQL server that several nodes share, for example. "
        "Unset: the SQLite file pdmuxd.db in state_dir.",
        json_schema_extra={
            "allowed": "a database URL such as sqlite:////var/lib/pdmuxd/pdmuxd.db or postgresql://USER@HOST/NAME"
        },
    )
    state_min_free_bytes: Annotated[WholeNumber, Field(ge=0, le=1 << 50)] = Field(
        256 << 20,
        description="Bytes that are to be free on the disk of state_dir; fewer raise the alarm `disk_low`.",
    )
    drain_timeout_s: Annotated[Number, Field(ge=0, le=3600)] = Field(
        30.0, description="Seconds that requests in flight may take to end when the daemon stops."
    )
    upgrade_drain_timeout_s: Annotated[Number, Field(ge=0, le=86_400)] = Field(
        600.0, description="Seconds that requests in flight may take to end after `pdmuxd upgrade`."
    )
    audit_retention_days: Annotated[WholeNumber, Field(ge=0, le=36_500)] = Field(
        400, description="How long entries of the audit are kept; 0: for good."
    )
    data: DataSection = DataSection()
    admin: AdminSection = AdminSection()
    http: HttpSection = HttpSection()
    engine: EngineSection = EngineSection()
    history: HistorySection = HistorySection()
    log: LogSection = LogSection()
    tracing: TracingSection = TracingSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is passed; `load_settings` adds its layers."""
        return (init_settings,)

    @field_validator("runtime_dir")
    @classmethod
    def _socket_fits(cls, path: Path | None) -> Path | None:
        if path is not None and not places.fits_sockets(path):
            raise not_allowed(
                f"allowed is a path of at most {places.MAX_RUNTIME_DIR_BYTES} bytes, so that sockets fit"
            )
        return path

    @field_validator("admin")
    @classmethod
    def _planes_apart(cls, admin: AdminSection, info: ValidationInfo) -> AdminSection:
        if not admin.allow_remote and not is_loopback(admin.host):
            raise not_allowed(
                "allowed is a loopback address such as 127.0.0.1, unless admin.allow_remote is true",
                key="admin.host",
            )
        if bool(admin.proxy_peers.strip()) != bool(admin.proxy_header):
            missing = "admin.proxy_peers" if admin.proxy_header else "admin.proxy_header"
            raise not_allowed(
                "admin.proxy_peers and admin.proxy_header are set together or not at all", key=missing
            )
        if too_many(admin.proxy_peers):
            raise not_allowed(
                f"allowed are networks of at most {PROXY_ADDRESSES} addresses: each may name anyone",
                key="admin.proxy_peers",
            )
        data = info.data.get("data")
        if data is not None and admin.port == data.port != 0:
            raise not_allowed("allowed is another port than that of data.port", key="admin.port")
        return admin

    @property
    def resolved_state_dir(self) -> Path:
        """Absolute; not created by asking."""
        return places.absolute(self.state_dir or places.default_state_dir(os.environ))

    @property
    def resolved_runtime_dir(self) -> Path:
        """Absolute, and short enough for a socket in it; not created by asking."""
        if self.runtime_dir is not None:
            return places.absolute(self.runtime_dir)
        return places.default_runtime_dir(self.resolved_state_dir)

    @property
    def resolved_token_file(self) -> Path:
        """Absolute; the file need not exist."""
        return places.absolute(
            self.admin.token_file or places.default_token_file(self.resolved_state_dir, os.environ)
        )

    @property
    def resolved_reader_token_file(self) -> Path:
        """Absolute; the file need not exist."""
        return places.absolute(
            self.admin.reader_token_file or self.resolved_state_dir / "reader-token.sha256"
        )

    @property
    def resolved_database_url(self) -> str:
        """The URL for SQLAlchemy; it may hold a password."""
        if self.database_url is not None:
            return self.database_url
        from pdmuxd.controlplane.database.sqlite import (
            sqlite_url,  # a quarter of a second, which most commands save
        )

        return sqlite_url(self.resolved_state_dir / "pdmuxd.db")
