"""The emulated engine ends soon after a request with the mark came.

Python imports this file at its start where $PYTHONPATH has the folder; other processes are left as they are.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

MARK = b"poison"
ENDS_AFTER_S = 0.5
"""Others that are in flight by then are there at its end."""

if "pdmuxd.engine.emulator.server" in getattr(sys, "orig_argv", ()):
    from pdmuxd.engine.emulator.server import app

    plan = app._Endpoints._plan

    def plan_or_end(endpoints: Any, data: bytes, *given: Any) -> Any:
        if MARK in data:
            threading.Timer(ENDS_AFTER_S, os._exit, (1,)).start()
        return plan(endpoints, data, *given)

    app._Endpoints._plan = plan_or_end
