"""What an engine's tokenizer answers without the model: how long a prompt is, its token ids, their text.

No tokens are made, so no limit of tokens counts it. It takes a place in flight and counts among the tenant's
and the key's requests as any other, since engines tokenize in the process that all tenants share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.bounds import LARGE_BODY_BYTES, RequestBounds, check_values
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.contract.fields import check_known, parse_body, require
from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.tables import REFUSED, REQUIRED, TABLES
from pdmuxd.daemon.gateway.contract.values import NAME_OF
from pdmuxd.daemon.gateway.exchange import End
from pdmuxd.daemon.gateway.forwarding import Forwarder
from pdmuxd.daemon.gateway.intake import Intake
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.daemon.gateway.requests import check_model
from pdmuxd.daemon.gateway.routes import Kind, Route
from pdmuxd.daemon.gateway.slot import EngineSlot
from pdmuxd.daemon.gateway.turns import Turns
from pdmuxd.daemon.httpd.asgi import Scope
from pdmuxd.daemon.supervisor.address import EngineRanges


class Tokenizing:
    """Passes such requests on, checked as all others are."""

    def __init__(
        self,
        *,
        admission: Admission,
        intake: Intake,
        slot: EngineSlot,
        forwarder: Forwarder,
        turns: Turns,
        limiter: Limiter,
    ) -> None:
        self._admission = admission
        self._turns = turns
        self._limiter = limiter
        self._intake = intake
        self._slot = slot
        self._forwarder = forwarder

    async def serve(self, call: Call, scope: Scope, route: Route, identity: Identity) -> None:
        """Answer one. Raises: RequestError."""
        tenant = identity.tenant
        self._admission.enter(tenant.name, tenant.max_in_flight, weight=tenant.weight)
        try:
            with self._limiter.reading(identity):
                body = await self._intake.read(call, scope)
                if body is None:
                    call.end = End.CLIENT_GONE
                    return
                upstream = self._slot.serving()
                model_of = partial(self._slot.model_of, tenant)
                work = (route.kind, body, self._intake.limits.bounds, upstream.address.ranges, model_of)
                if len(body) > LARGE_BODY_BYTES:
                    payload, model = await asyncio.to_thread(checked, *work)
                else:
                    payload, model = checked(*work)
                check_model(model, upstream.models)
            if not await self._turns.take(call, identity, Need()):
                call.end = End.CLIENT_GONE
                return
            await self._forwarder.relay(call, route, self._slot.serving(), payload)
        finally:
            self._limiter.leave(call.rid, was_served=False)  # no record of tokens comes
            self._admission.leave(tenant.name)


def checked(
    kind: Kind,
    body: bytes,
    bounds: RequestBounds,
    ranges: EngineRanges,
    model_of: Callable[[str], str] = lambda name: name,
) -> tuple[bytes, str | None]:
    """The body with its known fields alone, and the model that it names. Raises: RequestError 400."""
    check_values(body, bounds)
    fields = parse_body(body)
    require(fields, REQUIRED[kind])
    kept = check_known(fields, TABLES[kind], Limits(bounds=bounds, ranges=ranges), refused=REFUSED)
    given = kept.get("model")
    if given is None:
        return msgspec.json.encode(kept), None
    model = model_of(named := NAME_OF.decode(given))
    return msgspec.json.encode(kept if model == named else {**kept, "model": model}), model
