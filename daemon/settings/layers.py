"""The places that settings come from, each as one layer of values that knows its origins.

A layer holds raw values; the model checks them. A key that no layer may have is refused here, because
only here is it known where it was written.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from pdmuxd.daemon.settings import places
from pdmuxd.daemon.settings.keys import all_keys, key_names, section_names
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.mode import SPLIT_MARLIN

ENV_PREFIX = "PDMUXD_"
CONFIG_VARIABLE = "PDMUXD_CONFIG"
OTHER_VARIABLES = frozenset(
    {
        *(CONFIG_VARIABLE, "PDMUXD_ADMIN_TOKEN", "PDMUXD_API_KEY", "PDMUXD_ENGINE_API_KEY", "PDMUXD_URL"),
        SPLIT_MARLIN,
    }
)
"""Not settings: the path of pdmuxd.toml, what clients carry, and what the engine is told."""
RETIRED = {
    "engine.learn_fallback": "nothing is learned to fall back on: while predictions prove wrong, steps have "
    "a fixed size",
}
"""Settings that there were, and why there are none."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Raw values by dotted key, and where each was written."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: object, origin: str) -> None:
        """Add a value. Raises: SettingsError if there is no such key."""
        if key not in key_names():
            raise SettingsError(_unknown(key, value, origin))
        self.values[key] = value
        self.origins[key] = origin


class LayerSource(PydanticBaseSettingsSource):
    """Hands a layer to pydantic-settings, which merges the layers in order."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """The library's way to ask for one field; nested fields come as a dictionary."""
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for key, value in self._layer.values.items():
            *sections, name = key.split(".")
            table = nested
            for section in sections:
                table = table.setdefault(section, {})
            table[name] = value
        return nested


def machine_layer(environ: Mapping[str, str]) -> Layer:
    """The defaults that depend on the machine: the directories that systemd or XDG name."""
    layer = Layer()
    state = "default, $STATE_DIRECTORY" if environ.get("STATE_DIRECTORY") else "default"
    layer.put("state_dir", places.default_state_dir(environ), state)
    runtime_dir = places.given_runtime_dir(environ)
    if runtime_dir is not None:
        layer.put("runtime_dir", runtime_dir, "default, $RUNTIME_DIRECTORY")
    return layer


def file_layer(path: Path) -> Layer:
    """The keys of a pdmuxd.toml. Raises: SettingsError if it cannot be read, or has an unknown key."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the configuration file {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the configuration file {path} is not TOML: {error}") from error
    layer = Layer()
    for key, value in _flat(content, ""):
        layer.put(key, value, f"file {path}")
    return layer


def env_layer(environ: Mapping[str, str]) -> Layer:
    """The variables that start with PDMUXD_; two underscores stand for the dot: PDMUXD_DATA__PORT."""
    layer = Layer()
    for name, value in sorted(environ.items()):
        if name.startswith(ENV_PREFIX) and name not in OTHER_VARIABLES:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            layer.put(key, value, f"env {name}")
    return layer


def flag_layer(overrides: Mapping[str, object]) -> Layer:
    """What the command line says, by dotted key; None is a flag that was not given."""
    layer = Layer()
    for key, value in overrides.items():
        if value is not None:
            layer.put(key, value, "flag")
    return layer


def parse_assignments(assignments: Iterable[str]) -> dict[str, object]:
    """Read `--set key=value`; the last wins. Raises: SettingsError for one without an equals sign."""
    parsed: dict[str, object] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set {text!r} is not allowed: give key=value, such as data.port=8090")
        parsed[key.strip()] = value.strip()
    return parsed


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        # A quoted key may contain a dot; it is not the key of that name in a table.
        key = prefix + (f'"{name}"' if "." in name else name)
        if isinstance(value, dict) and (value or key in section_names()):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _unknown(key: str, value: object, origin: str) -> str:
    if key in section_names():
        if origin.startswith("file"):
            return f"{key} is {value!r} ({origin}): allowed is a table, [{key}]"
        return f"{key} is a group of keys ({origin}): give one of them, such as {_of_section(key)}"
    if key in RETIRED:
        return f"{key} ({origin}) is no longer a setting, take it out: {RETIRED[key]}"
    near = difflib.get_close_matches(key, sorted(key_names()), n=1, cutoff=0.6) or [
        name for name in sorted(key_names()) if name.replace(".", "_") == key or name.endswith(f".{key}")
    ]
    hint = f"did you mean {near[0]}?" if near else "`pdmuxd config example` lists all keys"
    return f"unknown key {key} ({origin}): {hint}"


def _of_section(section: str) -> str:
    return next(key.name for key in all_keys() if key.name.startswith(f"{section}."))
