"""The one way into the console."""

from __future__ import annotations

from pdmuxd.tui.app import ConsoleApp
from pdmuxd.tui.client.target import Target


def run_console(target: Target, *, is_light: bool = False) -> int:
    """Run until the user quits; returns the exit code."""
    app = ConsoleApp(target, is_light=is_light)
    app.run()
    return app.return_code or 0
