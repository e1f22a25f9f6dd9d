"""A daemon starts without what only profiling or reports need: half of its start is imports."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("scipy.optimize", "scipy.stats", "plotly", "textual", "torch", "opentelemetry.sdk")


def test_nothing_that_only_others_need_is_imported_when_the_daemon_starts() -> None:
    code = f"import sys, pdmuxd.daemon.app; print([name for name in {HEAVY!r} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
