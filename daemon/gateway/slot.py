"""The engine that requests go to, if there is one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.gateway.admission import RETRY_AFTER_S
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.supervisor.address import EngineAddress, EngineRanges
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.engine.core.errors import RequestError

_WHY = {
    "starting": ("engine_starting", "the engine is starting"),
    "draining": ("draining", "no new requests are taken: requests in flight are being finished"),
    "unresponsive": ("engine_unresponsive", "the engine has been silent for some seconds"),
    "down": ("engine_down", "the engine is down and will be started again"),
}


class EngineSlot:
    """Holds at most one upstream; each engine that serves puts a new one in."""

    def __init__(self, *, on_abort_error: Callable[[], None]) -> None:
        self._on_abort_error = on_abort_error
        self._upstream: Upstream | None = None
        self._why = "starting"
        self._draining = False
        self._unresponsive = False
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_final = False
        self.ranges: EngineRanges | None = None
        """Of the engine that serves, or of the last one; None before the first."""
        self._models: frozenset[str] = frozenset()

    @property
    def upstream(self) -> Upstream | None:
        """The engine that is there, whether it takes requests or not."""
        return self._upstream

    @property
    def is_draining(self) -> bool:
        """Whether an operator has new requests refused."""
        return self._draining

    async def serving_within(self, timeout_s: float) -> Upstream:
        """The upstream for a request. Raises: RequestError 503."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._is_final:
                    with contextlib.suppress(RequestError):
                        return self.serving()
                    await self._changed.wait()
        return self.serving()

    def wait_no_more(self) -> None:
        """End all waits for an engine, since the daemon stops."""
        self._is_final = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def serving(self) -> Upstream:
        """The upstream for a new request. Raises: RequestError 503 saying why there is none."""
        if self._upstream is None or self._draining or self._unresponsive:
            why = "draining" if self._draining else self._why if self._upstream is None else "unresponsive"
            code, message = _WHY[why]
            raise RequestError(message, status=503, code=code, retry_after_s=RETRY_AFTER_S)
        return self._upstream

    @property
    def context_tokens(self) -> int | None:
        """How many tokens the model's context holds; None if no engine says so."""
        return None if self._upstream is None else self._upstream.address.context_tokens

    def model_of(self, tenant: TenantRecord, name: str) -> str:
        """The served model if `name` is an alias of the tenant's for it, else `name`.

        Raises: RequestError 503 for an alias while no engine has said what it serves.
        """
        if name in self._models or not tenant.knows_model(name):
            return name
        return min(self._models or self.serving().models)

    def takes_tokens(self, asked: Direct) -> bool:
        """Whether the engine's scheduler can send the tokens of such an answer straight here."""
        tokens = None if self._upstream is None else self._upstream.address.tokens
        return tokens is not None and tokens.takes(asked)

    def fill(self, address: EngineAddress) -> None:
        """New requests go to the engine at `address`; if they do already, those in flight go on."""
        self._unresponsive = False
        if self._upstream is not None and self._upstream.address == address:
            return
        self._drop()
        self.ranges = address.ranges
        self._models = address.models
        self._upstream = Upstream(address, on_abort_error=self._on_abort_error)
        self._tell()

    def empty(self, state: str) -> None:
        """New requests are refused because the engine is in `state`."""
        self._why = state
        self._drop()

    def suspect(self, is_unresponsive: bool) -> None:
        """Whether the engine is silent: new requests would only wait with those that do."""
        self._unresponsive = is_unresponsive
        self._tell()

    def refuse_new(self) -> None:
        """Refuse new requests from now on; those under way keep their upstream."""
        self._draining = True

    def accept_new(self) -> None:
        """Take new requests again, as soon as there is an upstream."""
        self._draining = False
        self._tell()

    async def close(self) -> None:
        """Close every connection to the engine."""
        self._drop()
        if self._closing:
            await asyncio.wait(self._closing)

    def _drop(self) -> None:
        if self._upstream is not None:
            task = asyncio.create_task(self._upstream.close(), name="close-upstream")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._upstream = None
