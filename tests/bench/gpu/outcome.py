"""What scripts share that measure one thing on servers of their own: a folder, an end without a traceback."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bench import run_until_told
from server import ArmError, ServerError

Found = TypeVar("Found")


def outcome_of(measure: Callable[[Path], Coroutine[Any, Any, Found]]) -> Found | None:
    """What was found, in a folder that is gone afterwards; None, and why on stdout, if nothing was."""
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        try:
            return run_until_told(measure(Path(folder)))
        except (ServerError, ArmError) as error:
            print(f"FAILED: {error}")
            return None
