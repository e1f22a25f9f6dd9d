"""Finds and merges the layers of settings: flags over environment over pdmuxd.toml over defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from pdmuxd.daemon.settings import places
from pdmuxd.daemon.settings.explain import explain, origins_of
from pdmuxd.daemon.settings.layers import (
    CONFIG_VARIABLE,
    Layer,
    LayerSource,
    env_layer,
    file_layer,
    flag_layer,
    machine_layer,
)
from pdmuxd.daemon.settings.model import Settings
from pdmuxd.engine.core.errors import SettingsError

SEARCH = (Path("pdmuxd.toml"), Path("/etc/pdmuxd/pdmuxd.toml"))
"""Where pdmuxd.toml is looked for when neither --config nor $PDMUXD_CONFIG names one."""


@dataclass(frozen=True)
class LoadedSettings:
    """The effective settings and where each came from."""

    settings: Settings
    origins: Mapping[str, str]
    """By dotted key: `default`, `file PATH`, `env NAME` or `flag`."""
    config_file: Path | None = None
    notes: tuple[str, ...] = ()
    """Remarks for the operator, each a sentence."""


class DeferredSettings(LoadedSettings):
    """Settings that are read when they are first asked for.

    So `--help` and `version` work beside a broken pdmuxd.toml. Any attribute may raise SettingsError.
    """

    def __init__(self, load: Callable[[], LoadedSettings]) -> None:
        self.__dict__["_load"] = load

    @cached_property
    def _loaded(self) -> LoadedSettings:
        loaded: LoadedSettings = self.__dict__["_load"]()
        return loaded

    @property
    def settings(self) -> Settings:
        return self._loaded.settings

    @property
    def origins(self) -> Mapping[str, str]:
        return self._loaded.origins

    @property
    def config_file(self) -> Path | None:
        """The pdmuxd.toml that was read."""
        return self._loaded.config_file

    @property
    def notes(self) -> tuple[str, ...]:
        return self._loaded.notes


def load_settings(
    config: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    search: Sequence[Path] = SEARCH,
) -> LoadedSettings:
    """Read and check all settings.

    `overrides` holds flags by dotted key; None stands for a flag that was not given. `environ` defaults
    to the process's own.
    Raises: SettingsError, on one line, naming the key, its origin and what is allowed.
    """
    environ = os.environ if environ is None else environ
    path = find_config(config, environ, search)
    layers = (
        flag_layer(overrides or {}),
        env_layer(environ),
        file_layer(path) if path is not None else Layer(),
        machine_layer(environ),
    )
    settings = _merge(layers)
    return LoadedSettings(
        settings=settings, origins=origins_of(layers), config_file=path, notes=_notes(settings)
    )


def find_config(
    config: Path | None, environ: Mapping[str, str], search: Sequence[Path] = SEARCH
) -> Path | None:
    """The pdmuxd.toml to read; one that was named must be readable, the others need not exist."""
    variable = environ.get(CONFIG_VARIABLE)
    named = config or (places.absolute(Path(variable)) if variable else None)
    return named or next((path for path in search if path.is_file()), None)


def _merge(layers: tuple[Layer, ...]) -> Settings:
    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: object, **__: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(LayerSource(settings_cls, layer) for layer in layers)

    try:
        return Layered()
    except ValidationError as error:
        raise SettingsError(explain(error, layers)) from error


def _notes(settings: Settings) -> tuple[str, ...]:
    state_dir, runtime_dir = settings.resolved_state_dir, settings.resolved_runtime_dir
    if settings.runtime_dir is not None or runtime_dir == state_dir / "run":
        return ()
    return (
        f"sockets are put into {runtime_dir}, because in {state_dir / 'run'} their paths would be "
        f"longer than the {places.SOCKET_PATH_BYTES} bytes that Linux allows",
    )
