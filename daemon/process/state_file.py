"""Small files that are replaced as a whole, most of them of what was learned, by name, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel
from structlog.typing import FilteringBoundLogger

Known = TypeVar("Known", bound=dict[str, Any])


def read_state(path: Path, kind: type[Known], log: FilteringBoundLogger, unreadable: str) -> Known:
    """What the file holds; nothing if there is none, or, with the warning `unreadable`, if it is spoilt."""
    try:
        found: Known = msgspec.json.decode(path.read_bytes(), type=kind, dec_hook=_made)
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.MsgspecError) as error:
        log.warning(unreadable, file=str(path), reason=str(error))
        return kind()
    return found


def write_state(path: Path, known: Mapping[str, Any]) -> None:
    """Replace what the file holds. Raises: OSError."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(dict(known), enc_hook=_plain)))


def replace_file(path: Path, content: bytes) -> None:
    """Write the file so that a reader finds the old one or the new one; its owner alone reads it. Raises:
    OSError."""
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump()
    raise NotImplementedError(f"{type(value).__name__} cannot be kept")


def _made(kind: type, value: object) -> object:
    if issubclass(kind, BaseModel):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be kept")
