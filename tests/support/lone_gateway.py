"""The gateway by itself, on a socket, in front of an engine that somebody else started."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.tenants.records import KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.gateway.intake import BodyLimits
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.serving.servers import bind, serving, url_of
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.daemon.tokens.receiver import TokenReceiver
from pdmuxd.engine.core.slo import DEFAULT_SLO

KEY = "pdm_lone"
TENANT = "default"
_MAX_IN_FLIGHT = 4096
_BUFFER_BYTES = 256 * 1024


def directory(tbt_s: float = DEFAULT_SLO.tbt_s) -> DirectorySnapshot:
    """One tenant, one key."""
    slo = replace(DEFAULT_SLO, tbt_s=tbt_s)
    tenant = TenantRecord(name=TENANT, enabled=True, slo=slo, slo_version=1, max_in_flight=_MAX_IN_FLIGHT)
    key = KeyRecord(key_id="key_lone", tenant=TENANT, scopes=frozenset({"serve"}), expires_at_s=None)
    return DirectorySnapshot(version=1, tenants={TENANT: tenant}, keys={digest(KEY): key})


@contextlib.asynccontextmanager
async def lone_gateway(
    base_url: str,
    key: str,
    model: str,
    *,
    tokens: Path | None = None,
    tbt_s: float = DEFAULT_SLO.tbt_s,
) -> AsyncIterator[tuple[str, TokenReceiver | None]]:
    """Its URL, and where the scheduler's tokens come in: at the socket `tokens`, if that is given.

    The tenant's TBT target is `tbt_s`.
    """
    async with contextlib.AsyncExitStack() as stack:
        metrics = Metrics()
        metrics.use_tenants((TENANT,))
        gateway = Gateway(
            directory=directory(tbt_s),
            limits=BodyLimits(max_bytes=2**20),
            admission=Admission(_MAX_IN_FLIGHT),
            metrics=metrics,
        )
        stack.push_async_callback(gateway.close)
        receiver = None
        if tokens is not None:
            receiver = TokenReceiver(tokens, max_unsent_bytes=_BUFFER_BYTES)
            stack.callback(receiver.close)
        listener = bind("127.0.0.1", 0, section="data")
        await stack.enter_async_context(serving(gateway, listener))
        gateway.use_engine(
            EngineAddress(base_url=base_url, api_key=key, models=frozenset({model}), tokens=receiver)
        )
        yield url_of(listener), receiver
