"""The effective settings for people and programs, with their origins and without passwords."""

from __future__ import annotations

from collections.abc import Iterator

from pdmuxd.daemon.process.redaction import mask_url
from pdmuxd.daemon.settings.explain import shown
from pdmuxd.daemon.settings.keys import SECRET_KEYS, all_keys
from pdmuxd.daemon.settings.load import LoadedSettings

_RESOLVED = {
    "state_dir": "resolved_state_dir",
    "runtime_dir": "resolved_runtime_dir",
    "database_url": "resolved_database_url",
    "admin.token_file": "resolved_token_file",
    "admin.reader_token_file": "resolved_reader_token_file",
}


def effective(loaded: LoadedSettings) -> dict[str, dict[str, object]]:
    """Effective values by dotted key, masked if secret, with their origins."""
    found: dict[str, dict[str, object]] = {}
    for key in all_keys():
        value = _value(loaded, key.name)
        if key.name in SECRET_KEYS:
            value = mask_url(str(value))
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            value = str(value)
        found[key.name] = {"value": value, "origin": loaded.origins[key.name]}
    return found


def table(loaded: LoadedSettings) -> Iterator[str]:
    """The same as lines of three columns, then the remarks."""
    yield f"# configuration file: {loaded.config_file or 'none'}"
    rows = [(key, shown(key, row["value"]), str(row["origin"])) for key, row in effective(loaded).items()]
    key_width = max(len(key) for key, _, _ in rows)
    value_width = max(len(value) for _, value, _ in rows)
    for key, value, origin in rows:
        yield f"{key:{key_width}}  {value:{value_width}}  {origin}"
    for note in loaded.notes:
        yield f"# {note}"


def _value(loaded: LoadedSettings, key: str) -> object:
    """What is in force, also where the setting itself was left open."""
    value: object = loaded.settings
    for name in _RESOLVED.get(key, key).split("."):
        value = getattr(value, name)
    return value
