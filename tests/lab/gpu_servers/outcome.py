"""What scripts share that measure one thing on servers of their own: a folder, an end without a traceback,
what is kept and printed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from pdmuxd.daemon.bench.results import append_result
from pdmuxd.daemon.bench.runner import run_until_told
from pdmuxd.daemon.bench.servers.server import ArmError, ServerError

Found = TypeVar("Found")
MISSED = 3
"""Exit code of a script that has measured, and kept, something else than was aimed at."""


def outcome_of(measure: Callable[[Path], Coroutine[Any, Any, Found]]) -> Found | None:
    """What was found, in a folder that is gone afterwards; None, and why on stdout, if nothing was."""
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        try:
            return run_until_told(measure(Path(folder)))
        except (ServerError, ArmError) as error:
            print(f"FAILED: {error}")
            return None


def kept_and_printed(
    measure: Callable[[Path], Coroutine[Any, Any, dict[str, Any]]],
    results: Path,
    *,
    lines: Callable[[dict[str, Any]], list[str]],
    is_met: Callable[[dict[str, Any]], bool],
) -> int:
    """Measure, append what was found to `results`, print it; the script's exit code."""
    found = outcome_of(measure)
    if found is None:
        return 1
    append_result(results, found)
    print("\n".join(lines(found)))
    return 0 if is_met(found) else MISSED
