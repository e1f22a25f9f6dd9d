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


def log_routes(path: Path | None) -> APIRouter:
    """`/engine/log`."""
    router = admin_router(prefix="/engine", tags=["engine"])

    @router.get("/log", responses=documented())
    def get_engine_log(lines: Annotated[int, Query(ge=1, le=LINES_MAX)] = 200) -> LogOut:
        """Show the last lines that the engine printed, of at most half a MiB."""
        if path is None:
            return LogOut(path=None, lines=[], truncated=False)
        found, is_cut = _tail(path)
        shown = [line[:_LINE_LENGTH] for line in found[-lines:]]
        return LogOut(path=str(path), lines=shown, truncated=is_cut or len(found) > lines)

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
