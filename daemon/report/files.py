"""Results as files: JSON, and pages, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pdmuxd.engine.core.errors import SettingsError


def to_json(document: msgspec.Struct) -> bytes:
    """Indented JSON with a final line end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written before the work is done. Raises: SettingsError naming it."""
    if path.is_dir():
        raise SettingsError(f"{path}: is a directory; give a file")
    if not path.parent.is_dir():
        raise SettingsError(f"{path}: cannot be written: {path.parent} is not a directory")
    if not os.access(path.parent, os.W_OK):
        raise SettingsError(f"{path}: cannot be written: no permission in {path.parent}")


def write_file(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all. Raises: SettingsError naming the path."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from None
