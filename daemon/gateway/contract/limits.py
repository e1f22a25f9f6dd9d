"""What a field's value may be at most: by the settings, and by the engine that serves."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.daemon.gateway.bounds import RequestBounds
from pdmuxd.daemon.supervisor.address import EngineRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings' bounds and the engine's ranges."""

    bounds: RequestBounds = RequestBounds()  # noqa: RUF009 - frozen
    ranges: EngineRanges = EngineRanges()  # noqa: RUF009 - frozen
