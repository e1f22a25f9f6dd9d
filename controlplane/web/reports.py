"""Files of reports that operators made with `--html`: listed, and opened where they reach no other page.

Whatever is in such a file, its scripts run in an origin of its own, without the cookie of the login, and can
ask no address for anything.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.responses import Response

from pdmuxd.controlplane.web.pages import page_router
from pdmuxd.controlplane.web.tables import Column, Link, Table, count, long, when
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}\.html")
"""No separator, and no dot in front: a name leads nowhere else."""
NAME_ALLOWED = "letters, digits, dots, - and _, then .html; 1 to 101 characters"
MOST = 100
MAX_BYTES = 32 * 2**20
"""A report is its plots' library, 4.7 MB, and its numbers: the largest seen had 7 MB (2026-11-26)."""
_HEAD_BYTES = 4096
_TITLE = re.compile(r"<title>([^<]{1,300})</title>")
REPORT_HEADERS = {
    "Content-Security-Policy": (
        "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Without an opener policy: a browser refuses a page that has both that and a sandbox."""

FileName = Annotated[str, PathParameter(max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A file. `title` is what it says of itself."""

    name: str
    title: str
    size_bytes: int
    changed_at: datetime


class Reports:
    """The files of one folder, which need not be there; used in worker threads."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def newest_first(self) -> list[Report]:
        """Reports, at most MOST; what is no plain file of an allowed name and size is left out."""
        try:
            names = [] if self.folder is None else [file.name for file in self.folder.iterdir()]
        except OSError:
            return []
        found = []
        for name in names:
            try:
                found.append(self._look(name))
            except (NotFoundError, InvalidValueError):
                continue
        return sorted(found, key=lambda one: one.changed_at, reverse=True)[:MOST]

    def read(self, name: str) -> bytes:
        """The whole file. Raises: InvalidValueError for a name that is not allowed, NotFoundError."""
        with self._opened(name) as (file, _), open(file, "rb", closefd=False) as reader:
            return reader.read(MAX_BYTES)

    def _look(self, name: str) -> Report:
        with self._opened(name) as (file, found):
            head = os.read(file, _HEAD_BYTES).decode(errors="replace")
        title = _TITLE.search(head)
        return Report(
            name=name,
            title=html.unescape(title[1]).strip() if title else "",
            size_bytes=found.st_size,
            changed_at=datetime.fromtimestamp(found.st_mtime, UTC),
        )

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        if not NAME.fullmatch(name):
            raise InvalidValueError("file", f"file is {name[:40]!a}; allowed are {NAME_ALLOWED}")
        missing = NotFoundError(f"there is no report {name}")
        if self.folder is None:
            raise missing
        try:
            # A link is not followed, and a pipe is not waited for.
            file = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            raise missing from None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                raise missing
            yield file, found
        finally:
            os.close(file)


def report_routes(reports: Reports) -> APIRouter:
    """`/ui/reports/{file}`."""
    router = page_router()

    @router.get("/reports/{file}")
    async def show_report(file: FileName) -> Response:
        content = await asyncio.to_thread(reports.read, file)
        return Response(content, media_type="text/html; charset=utf-8", headers=REPORT_HEADERS)

    return router


def report_table(reports: Reports, *, shows_paths: bool) -> Table:
    """The list. Where to put them is told to those who may know paths."""
    where = f" in {reports.folder}" if shows_paths and reports.folder is not None else ""
    return Table(
        name="reports",
        title="Reports",
        note="files that replay, compare, bench and profile report made, newest first",
        columns=(
            Column("file", "File"),
            long("title", "Of"),
            when("changed_at", "Made"),
            count("size_bytes", "Bytes"),
        ),
        rows=[
            (Link(one.name, f"/ui/reports/{one.name}"), one.title, one.changed_at, one.size_bytes)
            for one in reports.newest_first()
        ],
        empty=f"None is there{where}: pdmuxd replay --html makes one.",
    )
