"""Keeps what the last changes did in a file of the state directory, so that a restart does not forget it.

Not in the database, which several nodes share: each measures what a change did to its own engine. The history
by the minute could not give it back, since it has no percentiles and no splits.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import structlog

from pdmuxd.controlplane.telemetry.effects import Effect, Effects
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.process.state_file import read_state, write_state

PERIOD_S = 60.0
"""A comparison that goes on is written so often: no more of it is lost when the daemon is killed."""
_NAME = "effects"

log = structlog.get_logger("pdmuxd.effects")


class EffectsKeeper:
    """Takes up what `path` has, when it is made. Lives in the event loop."""

    def __init__(self, path: Path, effects: Effects) -> None:
        self._path = path
        self._effects = effects
        kept = read_state(path, dict[str, list[Effect]], log, "what changes did before cannot be read")
        effects.restore(kept.get(_NAME, []))
        self._written = effects.all()
        self._writing = threading.Lock()

    async def write(self) -> None:
        """Write what is known, if it is not what was written last."""
        known = await self._effects.told()
        if known == self._written:
            return
        try:
            await asyncio.to_thread(self._store, known)
        except OSError as error:
            log.warning("what changes did is not kept over a restart", reason=str(error))
        else:
            self._written = known

    async def run(self) -> None:
        """Write when a comparison begins or ends, and while one goes on every PERIOD_S, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(PERIOD_S if self._effects.is_measuring else None):
                    await self._effects.has_news.wait()
            except TimeoutError:
                pass
            self._effects.has_news.clear()
            await self.write()

    def _store(self, known: list[Effect]) -> None:
        with self._writing:  # a thread outlives the task that was cancelled
            write_state(self._path, {_NAME: known})


def duties(keeper: EffectsKeeper) -> tuple[Duty, ...]:
    """Keep them, and at the end as they are then."""
    return (Duty(name="keeping effects", work=keeper.run, at_end=keeper.write, is_alone=True),)
