"""Notes when keys and admin tokens were last used: in memory at once, in the database now and then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from pdmuxd.controlplane.database.callers import Caller
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import StoreError

PERIOD_S = 30.0

log = structlog.get_logger("pdmuxd.daemon")


class Uses:
    """Each use is noted in the event loop, which costs an assignment; `store` writes each key once."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._keys: dict[str, datetime] = {}
        self._tokens: dict[str, datetime] = {}

    def key(self, key_id: str) -> None:
        self._keys[key_id] = datetime.now(UTC)

    def caller(self, caller: Caller) -> None:
        """A call on the admin address came with this token or key."""
        if caller.kind == "api-key":
            self.key(caller.name)
        elif caller.kind == "admin-token":
            self._tokens[caller.name] = datetime.now(UTC)

    async def store(self) -> None:
        """Write what was used since the last time; what cannot be written is tried again with the next."""
        keys, self._keys = self._keys, {}
        tokens, self._tokens = self._tokens, {}
        try:
            await asyncio.to_thread(self._control_plane.keys.used, keys)
            await asyncio.to_thread(self._control_plane.admin_tokens.used, tokens)
        except StoreError as error:
            self._keys = keys | self._keys
            self._tokens = tokens | self._tokens
            log.warning("the last uses of keys are not stored", reason=str(error))


def duties(uses: Uses) -> tuple[Duty, ...]:
    """Store the uses every PERIOD_S, and once more at the end."""
    return (Duty(name="noting uses of keys", work=uses.store, period_s=PERIOD_S, at_end=uses.store),)
