"""Reads the body of a request and rewrites it for the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.gateway.bounds import LARGE_BODY_BYTES, RequestBounds
from pdmuxd.daemon.gateway.cache_key import namespace_of
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.content_encoding import decoded
from pdmuxd.daemon.gateway.observer import CallObserver
from pdmuxd.daemon.gateway.requests import EngineRequest, rewrite
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.daemon.httpd.arrival import arrived_s
from pdmuxd.daemon.httpd.asgi import BODY_TIMEOUT_S, Scope, read_body
from pdmuxd.daemon.supervisor.address import EngineRanges
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.link.request_tag import params_of

"""Kinds of calls whose streams may be made of the scheduler's tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, what it may ask for, and how long it may take to arrive."""

    max_bytes: int
    bounds: RequestBounds = RequestBounds()  # noqa: RUF009 - frozen
    timeout_s: float = BODY_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request whose body has arrived."""

    request: EngineRequest
    body_bytes: int
    arrived_s: float
    """When the whole body had arrived (monotonic clock). Rewriting it comes after that."""
    late_s: float
    """How much later the gateway had read it."""


class Intake:
    """Reads bodies within the limits, and tells the observer of each."""

    def __init__(
        self,
        limits: BodyLimits,
        *,
        observer: CallObserver,
        name_prefixes: Callable[[bytes, str], tuple[int, ...]] | None,
        takes_tokens: Callable[[Direct], bool] = lambda _: False,
        ranges: Callable[[], EngineRanges | None] = lambda: None,
        model_of: Callable[[TenantRecord, str], str] = lambda _, name: name,
    ) -> None:
        """`name_prefixes` names the leading parts of a prompt in a cache namespace; None: none are named.

        `takes_tokens` says whether the scheduler's tokens of an answer can be used; `ranges` what
        the engine counts in, or None while no engine has been seen; `model_of` which model a tenant means.
        """
        self.limits = limits
        self._observer = observer
        self._name_prefixes = name_prefixes
        self._takes_tokens = takes_tokens
        self._ranges = ranges
        self._model_of = model_of
        self._one_large_body = asyncio.Lock()

    async def receive(
        self,
        call: Call,
        scope: Scope,
        kind: Kind,
        tenant: TenantRecord,
        targets: RequestTargets | None = None,
        *,
        max_output_tokens: int | None = None,
    ) -> Received | None:
        """Read the body and make the request for the engine; None if the client left.

        Raises: RequestError 400, 408, 413 or 415.
        """
        reading_s = time.monotonic()
        body = await self.read(call, scope)
        if body is None:
            return None
        # By the kernel: a loop that is late has begun to read after the bytes were there.
        came_s = arrived_s(scope)
        late_s = time.monotonic() - came_s
        request = await self._rewrite(
            kind, body, rid=call.rid, tenant=tenant, targets=targets, max_output_tokens=max_output_tokens
        )
        self._observer.on_read(
            call.rid,
            is_streamed=request.is_streamed,
            body_bytes=len(body),
            read_s=came_s - reading_s,
            answers=request.outputs,
        )
        if self._name_prefixes is not None:
            prefixes = self._name_prefixes(request.prompt, namespace_of(tenant))
            self._observer.on_prompt(call.rid, prompt_bytes=len(request.prompt), prefixes=prefixes)
        return Received(request=request, body_bytes=len(body), arrived_s=came_s, late_s=late_s)

    async def read(self, call: Call, scope: Scope) -> bytes | None:
        """The body, unpacked; None if the client left. Raises: RequestError 400, 408, 413 or 415."""
        limits = self.limits
        body = await read_body(scope, call.receive, max_bytes=limits.max_bytes, timeout_s=limits.timeout_s)
        return None if body is None else await decoded(scope, body, max_bytes=limits.max_bytes)

    async def _rewrite(
        self,
        kind: Kind,
        body: bytes,
        *,
        rid: str,
        tenant: TenantRecord,
        targets: RequestTargets | None,
        max_output_tokens: int | None,
    ) -> EngineRequest:
        """Check and rewrite a body; a large one in a thread, so that other streams go on meanwhile."""
        work = partial(
            rewrite,
            kind,
            body,
            rid=rid,
            tenant=tenant.name,
            cache_namespace=namespace_of(tenant),
            bounds=self.limits.bounds,
            ranges=self._ranges(),
            targets=params_of(targets),
            max_output_tokens=max_output_tokens,
            model_of=partial(self._model_of, tenant),
            takes_tokens=self._takes_tokens,
        )
        if len(body) <= LARGE_BODY_BYTES:
            return work()
        async with self._one_large_body:
            return await asyncio.to_thread(work)
