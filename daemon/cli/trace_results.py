"""Showing and writing what the commands which read a trace have found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import RenderableType

from pdmuxd.daemon.cli.output import standard_output
from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.replay.document import ReplayDocument
from pdmuxd.daemon.report.files import check_writable, to_json, write_file


def check_outputs(*paths: Path | None) -> None:
    """Refuse what could not be written, before the work is done. Raises: SettingsError."""
    for path in paths:
        if path is not None:
            check_writable(path)


def publish(
    document: ReplayDocument | CompareDocument,
    *,
    title: str,
    verdict: str,
    notes: Sequence[str],
    table: RenderableType,
    page: Callable[[], str],
    json: Path | None,
    html: Path | None,
) -> None:
    """Print verdict, title, profile, notes and table, then write the files that were asked for."""
    console, profile = standard_output(), document.profile
    console.print(verdict, markup=False, style="bold")
    console.print(title, markup=False)
    console.print(f"{profile.name}: {profile.model} on {profile.device} ({profile.provenance})", markup=False)
    for note in notes:
        console.print(f"Note: {note}", markup=False)
    console.print(table)
    if json is not None:
        write_file(json, to_json(document))
        console.print(f"JSON written to {json}", markup=False)
    if html is not None:
        write_file(html, page().encode())
        console.print(f"Report written to {html}", markup=False)
