"""The end of the engine's log over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router

LINES_MAX = 2000
_BYTES_MAX = 512 * 1024
_LINE_LENGTH = 2000


class LogOut(BaseModel):
    """The last lines, oldest first."""

    path: str | None = Field(
        description="Null where no daemon runs.", examples=["/var/lib/pdmuxd/engine.log"]
    )
    lines: list[str]
    truncated: bool = Field(description="There are earlier lines in the file.")


class EngineLog:
    """The file that the engine prints into; `path` is None where no daemon runs."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def tail(self, lines: int) -> LogOut:
        """The last lines, of at most half a MiB."""
        if self._path is None:
            return LogOut(path=None, lines=[], truncated=False)
        found, is_cut = _tail(self._path)
        shown = [line[:_LINE_LENGTH] for line in found[-lines:]]
        return LogOut(path=str(self._path), lines=shown, truncated=is_cut or len(found) > lines)


def log_routes(log: EngineLog) -> APIRouter:
    """`/engine/log`."""
    router = admin_router(prefix="/engine", tags=["engine"])

    @router.get("/log", responses=documented())
    def get_engine_log(lines: Annotated[int, Query(ge=1, le=LINES_MAX)] = 200) -> LogOut:
        """Show the last lines that the engine printed, of at most half a MiB."""
        return log.tail(lines)

    return router


def _tail(path: Path) -> tuple[list[str], bool]:
    """The lines of the file's end, and whether there is more before them."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _BYTES_MAX)
            file.seek(start)
            text = file.read().decode(errors="replace")
    except OSError:
        return [], False
    lines = text.splitlines()
    return (lines[1:] if start else lines), start > 0
