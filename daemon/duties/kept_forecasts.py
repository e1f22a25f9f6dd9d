"""Makes a forecast every five minutes, as an operator would ask for it, and keeps how far each was off.

The errors are kept in a file of the state directory: the next forecast's band is made of them, and a restart
should not make it wide again. Each node keeps its own, since each has another engine and another host.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from pdmuxd.controlplane.outlook.edit_replay import replayed
from pdmuxd.controlplane.outlook.limit_forecast import predicted
from pdmuxd.controlplane.outlook.slo_preview import held_shares
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.telemetry.forecast_record import HORIZON_S, Checked
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.process.state_file import read_state, write_state
from pdmuxd.engine.core.errors import EngineError

_NAME = "forecasts"
LIMITS_EVERY_S = 5.0
MOST_LIMITS = 3
"""Of which something is predicted at a time: each takes two forecasts, some 100 ms in a thread."""

log = structlog.get_logger("pdmuxd.forecasts")


class ForecastKeeper:
    """Takes up what `path` has, when it is made. Lives in the event loop."""

    def __init__(self, path: Path, telemetry: Telemetry, predictors: Predictors) -> None:
        self._path = path
        self._telemetry = telemetry
        self._predictors = predictors
        kept = read_state(path, dict[str, list[Checked]], log, "how far forecasts were off cannot be read")
        telemetry.forecasts.restore(kept.get(_NAME, []))

    async def forecast(self) -> None:
        """Forecast the next five minutes under the targets that hold."""
        if self._telemetry.status().hello is None:
            return
        try:
            shares = await asyncio.to_thread(held_shares, self._telemetry, self._predictors)
        except EngineError as error:
            log.debug("nothing is forecast", reason=str(error))
            return
        self._telemetry.forecasts.note(shares, self._telemetry.clock())

    async def write(self) -> None:
        checked = self._telemetry.forecasts.checked()
        try:
            await asyncio.to_thread(write_state, self._path, {_NAME: checked})
        except OSError as error:
            log.warning("how far forecasts were off is not kept over a restart", reason=str(error))

    async def run(self) -> None:
        """Forecast every HORIZON_S, and write when one was compared, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(HORIZON_S):
                    await self._telemetry.forecasts.has_news.wait()
            except TimeoutError:
                await self.forecast()
                continue
            self._telemetry.forecasts.has_news.clear()
            await self.write()
            await self.forecast()

    async def forecast_limits(self) -> None:
        """Tell of open incidents what the limit that would help is predicted to do, and of the last changes
        what they did to the requests since, until cancelled."""
        incidents = self._telemetry.incidents
        while True:
            await asyncio.sleep(LIMITS_EVERY_S)
            for edit in self._telemetry.effects.to_replay():
                replay = await asyncio.to_thread(replayed, edit, self._telemetry, self._predictors)
                self._telemetry.effects.replayed(edit, replay)
            for one in incidents.limiting()[:MOST_LIMITS]:
                incidents.predict(await asyncio.to_thread(predicted, one, self._telemetry, self._predictors))


def duties(keeper: ForecastKeeper) -> tuple[Duty, ...]:
    """Check forecasts all the time."""
    return (
        Duty(name="checking forecasts", work=keeper.run, is_alone=True),
        Duty(name="forecasting what limits do", work=keeper.forecast_limits, is_alone=True),
    )
