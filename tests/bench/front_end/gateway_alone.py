"""The gateway in a process of its own, in front of an engine that somebody else started.

Its arguments: the engine's URL, its key, the model. It prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import structlog
import uvloop

from pdmuxd.controlplane.credentials import digest
from pdmuxd.controlplane.directory import DirectorySnapshot, KeyRecord, TenantRecord
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.servers import bind, serving, url_of
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.engine.core.slo import DEFAULT_SLO

KEY = "pdm_bench"
TENANT = "bench"
MAX_IN_FLIGHT = 4096


def directory() -> DirectorySnapshot:
    """One tenant, one key."""
    tenant = TenantRecord(
        name=TENANT, enabled=True, slo=DEFAULT_SLO, slo_version=1, max_in_flight=MAX_IN_FLIGHT
    )
    key = KeyRecord(key_id="key_bench", tenant=TENANT, scopes=frozenset({"serve"}), expires_at_s=None)
    return DirectorySnapshot(version=1, tenants={TENANT: tenant}, keys={digest(KEY): key})


async def main(base_url: str, key: str, model: str) -> None:
    """Serve until standard input ends."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with contextlib.AsyncExitStack() as stack:
        metrics = Metrics()
        metrics.use_tenants((TENANT,))
        gateway = Gateway(
            directory=directory(), max_body_bytes=2**20, admission=Admission(MAX_IN_FLIGHT), metrics=metrics
        )
        stack.push_async_callback(gateway.close)
        listener = bind("127.0.0.1", 0, section="data")
        await stack.enter_async_context(serving(gateway, listener))
        gateway.use_engine(EngineAddress(base_url=base_url, api_key=key, models=frozenset({model})))
        sys.stdout.write(f"{url_of(listener).rpartition(':')[2]}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
