"""What a start spends its time on: a line in the log for each part as it begins, and one with all of them.

    pdmuxd: start: capturing decode graphs 3/10 (16 SMs)
    pdmuxd: start: 87 s: launcher 21.0, imports 22.4, loading the model 6.1, ...

The daemon shows the part that is under way (`daemon/supervisor/diagnosis.py`). All members of a part are one
figure in the last line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pdmuxd.engine.link.procfs import boot_s

MARK = "pdmuxd: start: "
"""Begins each of the lines."""

_log = logging.getLogger(__name__)


class StartPhases:
    """Phases of one scheduler process's start; until a part begins, it imports.

    `launcher_s` and `process_s` are when the server's launcher and this process started, by `now_s`; None
    where that is not known.
    """

    def __init__(
        self, *, launcher_s: float | None, process_s: float | None, now_s: Callable[[], float] = boot_s
    ) -> None:
        now = now_s()
        process_s = now if process_s is None else min(process_s, now)
        self._now_s = now_s
        self._began_s = process_s if launcher_s is None else min(launcher_s, process_s)
        self._took_s = {"launcher": process_s - self._began_s}
        self._part, self._since_s = "imports", process_s
        self._is_over = False

    def begin(self, part: str, member: str = "") -> None:
        """A part begins, or its next member; that ends the part before."""
        if self._is_over:
            return
        self._close()
        self._part = part
        _log.info("%s%s%s", MARK, part, f" {member}" if member else "")

    def end(self) -> dict[str, float]:
        """The engine can serve; the seconds of each part."""
        if not self._is_over:
            self._close()
            self._is_over = True
            parts = ", ".join(f"{part} {took_s:.1f}" for part, took_s in self._took_s.items())
            _log.info("%s%.0f s: %s", MARK, self._now_s() - self._began_s, parts)
        return dict(self._took_s)

    def _close(self) -> None:
        now = self._now_s()
        self._took_s[self._part] = self._took_s.get(self._part, 0.0) + now - self._since_s
        self._since_s = now
