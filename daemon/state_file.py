"""Small files of the state directory that hold what was learned by name, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

Known = TypeVar("Known", bound=dict[str, Any])


def read_state(path: Path, kind: type[Known], log: FilteringBoundLogger, unreadable: str) -> Known:
    """What the file holds; nothing if there is none, or, with the warning `unreadable`, if it is spoilt."""
    try:
        found: Known = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return kind()
    except (OSError, msgspec.MsgspecError) as error:
        log.warning(unreadable, file=str(path), reason=str(error))
        return kind()
    return found


def write_state(path: Path, known: Mapping[str, Any]) -> None:
    """Replace the file as a whole: a reader finds the old one or the new one. Raises: OSError."""
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(dict(known))))
    unfinished.replace(path)
