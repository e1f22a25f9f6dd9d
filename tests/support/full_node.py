"""A daemon's parts in this process, with as many tenants, keys and streams as are promised, and how long one
call holds its event loop.

What holds the loop is measured twice. The processor time of each callback of the loop's thread is exact, and
other processes add little to it. How late a timer of the loop is also shows what worker threads do to it:
they share one interpreter. Of several calls the least counts: other processes can only add to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert
from stores import ADMIN_TOKEN, START, new_database
from telemetry_feeds import HELLO, heartbeat, request_record, step

from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.history.batch import Series
from pdmuxd.controlplane.history.reading import Judged
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.attainment import DAY_S, HOUR_S, MONTH_S
from pdmuxd.controlplane.telemetry.incidents import MOST_OPEN, MOST_OVER
from pdmuxd.controlplane.telemetry.telemetry import TICK_S as TURN_S
from pdmuxd.controlplane.telemetry.turning import keep_turning
from pdmuxd.controlplane.tenants.api_keys import ApiKeyRow
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.tenants.slo_revisions import SloRevisionRow
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.daemon.building.node import build_node, engine_plan
from pdmuxd.daemon.building.parts import Parts, build
from pdmuxd.daemon.bus import DirectoryChanged
from pdmuxd.daemon.events import follow_directory
from pdmuxd.daemon.process.giving_way import giving_way
from pdmuxd.daemon.settings import load_settings
from pdmuxd.daemon.supervisor.choice import choose_engine

TENANTS, KEYS_PER_TENANT, STREAMS = 10_000, 10, 500


def name_of(number: int) -> str:
    """As they are sorted."""
    return f"t{number:05}"


def fill(url: str, *, tenants: int = TENANTS, keys_per_tenant: int = KEYS_PER_TENANT) -> None:
    """All tenants and keys in one transaction; one by one it would take an hour."""
    engine = open_database(url)
    numbers = range(1, tenants + 1)
    with engine.begin() as connection:
        connection.execute(
            insert(TenantRow),
            [
                {"id": n, "name": name_of(n), "enabled": True, "max_in_flight": 64, "created_at": START}
                for n in numbers
            ],
        )
        slo = {"ttft_fixed_s": 0.5, "ttft_per_1k_new_tokens_s": 0.5, "tbt_s": 0.04, "attainment_ratio": 0.99}
        first = {"version": 1, "settings_version": 0, "created_at": START}
        connection.execute(insert(SloRevisionRow), [{"tenant_id": n, **first, **slo} for n in numbers])
        connection.execute(
            insert(ApiKeyRow),
            [
                {
                    "key_id": f"key_{n}_{key}",
                    "tenant_id": n,
                    "label": "",
                    "secret_sha256": digest(f"{n}-{key}"),
                    "last4": "abcd",
                    "created_at": START,
                }
                for n in numbers
                for key in range(keys_per_tenant)
            ],
        )
    engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call was answered."""

    status: int
    body_bytes: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """How long one call held the loop, at most, in seconds."""

    cpu_s: float
    """Of one callback in the loop's thread."""
    late_s: float
    """By which a timer of the loop was late."""
    took_s: float
    answer: Answer


class FullNode:
    """All parts but the engine and the sockets; its clock is real."""

    def __init__(self, parts: Parts, control_plane: ControlPlane) -> None:
        self.parts = parts
        self.control_plane = control_plane
        self._longest_s = 0.0

    def load(self, *, tenants: int, streams: int) -> None:
        """Every tenant had traffic this month, `streams` of them have a request under way."""
        telemetry, directory = self.parts.node.telemetry, self.control_plane.directory
        self.parts.node.bus.publish(DirectoryChanged(directory))
        telemetry.on_message(HELLO)
        telemetry.on_message(heartbeat(policy="auto"))
        now_s = telemetry.clock()
        for window_s in (HOUR_S, DAY_S, MONTH_S):
            telemetry.restore(
                [
                    Judged(
                        series=Series(tenant=name, since_ms=directory.tenants[name].since_ms, model="m"),
                        at_s=int(now_s) - 1800,
                        counts=(100, 3, 100, 5000, 40, 100, 2, 5000, 10),
                    )
                    for name in map(name_of, range(1, tenants + 1))
                ],
                directory.tenants,
                window_s=window_s,
            )
        for number in range(1, streams + 1):
            self.finish(name_of(number), f"ended-{number}")
            self.begin(name_of(number), f"open-{number}")
        for number in range(1, 50):
            self.parts.node.bus.publish(step(step=number))

    def suffer(self, *, tenants: int) -> None:
        """As many incidents as are named are open, and as many over as are kept; of the last tenants."""
        telemetry, last = self.parts.node.telemetry, tenants
        incidents = telemetry.incidents
        while len(incidents.over()) < MOST_OVER or len(incidents.causes()) < MOST_OPEN:
            numbers = range(last - MOST_OPEN + 1, last + 1)
            last -= MOST_OPEN
            for number in numbers:
                for miss in range(4):
                    name = f"late-{number}-{miss}"
                    self.finish(name_of(number), name, ttft_s=9.0, queue_s=8.0)
            while len(incidents.causes()) < MOST_OPEN:
                telemetry.tick()
            if len(incidents.over()) < MOST_OVER:
                for number in numbers:
                    incidents.drop(name_of(number), telemetry.clock())

    def begin(self, tenant: str, request_id: str) -> None:
        """A request comes and streams."""
        telemetry = self.parts.node.telemetry
        self.parts.data.gateway.admission.enter(tenant, 64)
        telemetry.on_begin(request_id, tenant=tenant, path="/v1/completions")
        telemetry.on_read(request_id, is_streamed=True, body_bytes=400, read_s=0.0)
        telemetry.on_sent(request_id)
        telemetry.on_first_byte(request_id)

    def finish(self, tenant: str, request_id: str, **fields: float) -> None:
        """A request has come and gone, and met its targets unless `fields` of its record say else."""
        telemetry = self.parts.node.telemetry
        telemetry.on_begin(request_id, tenant=tenant, path="/v1/completions")
        telemetry.on_read(request_id, is_streamed=True, body_bytes=400, read_s=0.0)
        self.parts.node.bus.publish(request_record(request_id=request_id, tenant=tenant, **fields))
        telemetry.on_answered(request_id, status=200)

    async def call(
        self, method: str, path: str, *, json: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One call on the admin application, without a socket between: only its own work is measured."""
        route, _, query = path.partition("?")
        sent = {"authorization": f"Bearer {ADMIN_TOKEN}", "host": "127.0.0.1", **(headers or {})}
        if json:
            sent["content-type"] = "application/json"
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": route,
            "raw_path": route.encode(),
            "query_string": query.encode(),
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("admin", 80),
        }
        chunks: list[bytes] = []
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            else:
                chunks.append(message.get("body", b""))

        await self.parts.admin.app(scope, receive, send)
        body = b"".join(chunks[:1])
        return Answer(status=statuses[0], body_bytes=sum(map(len, chunks)), body=body)

    async def hold(self, method: str, path: str, *, json: bytes = b"", times: int = 3) -> Hold:
        """How long a call holds the loop."""
        found = [
            await self._hold(method, path.replace("%d", str(n)), json.replace(b"%d", str(n).encode()))
            for n in range(1, times + 1)
        ]
        return Hold(
            cpu_s=min(each.cpu_s for each in found),
            late_s=min(each.late_s for each in found),
            took_s=min(each.took_s for each in found),
            answer=found[-1].answer,
        )

    async def turns_hold(self, turns: int) -> float:
        """How long the telemetry's turns hold the loop at most, in seconds of its thread."""
        self.parts.node.telemetry.events.clients = 1
        with _longest_callback() as longest:
            turning = asyncio.create_task(keep_turning(self.parts.node.telemetry))
            await asyncio.sleep(turns * TURN_S)
            turning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await turning
        return longest[0]

    async def _hold(self, method: str, path: str, json: bytes) -> Hold:
        ticker = asyncio.create_task(_late())
        await asyncio.sleep(0.01)
        with _longest_callback() as longest:
            begun = time.perf_counter()
            # In a task of its own: what runs already is not timed.
            answer = await asyncio.create_task(self.call(method, path, json=json))
            # What a change publishes comes after its answer.
            await asyncio.sleep(0.02)
            took_s = time.perf_counter() - begun
        ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticker
        return Hold(cpu_s=longest[0], late_s=_late_s[0], took_s=took_s, answer=answer)


_late_s = [0.0]
TICK_S = 0.001


async def _late() -> None:
    """Keeps the most by which a timer was late."""
    _late_s[0] = 0.0
    while True:
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        _late_s[0] = max(_late_s[0], time.perf_counter() - due)


@contextlib.contextmanager
def _longest_callback() -> Iterator[list[float]]:
    """The processor time of the longest callback of this thread's loop."""
    longest, run = [0.0], Handle._run

    def timed(self: Handle) -> None:
        begun = time.thread_time()
        run(self)
        longest[0] = max(longest[0], time.thread_time() - begun)

    Handle._run = timed  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        Handle._run = run  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def full_node(
    folder: Path, *, tenants: int = TENANTS, streams: int = STREAMS
) -> AsyncIterator[FullNode]:
    """One in `folder`, filled and loaded."""
    url = new_database(folder)
    fill(url, tenants=tenants)
    given = {"state_dir": str(folder), "database_url": url, "data.max_in_flight": "4096"}
    loaded = load_settings(None, given, environ={}, search=())
    engine = open_database(url)
    try:
        control_plane = ControlPlane(engine)
        choice = choose_engine(loaded.settings.engine, loaded.settings.resolved_state_dir)
        built = build_node(loaded.settings, engine_plan(loaded.settings, choice), control_plane)
        parts = build(loaded, control_plane, built, admin_token=ADMIN_TOKEN)
        supervisor: Any = parts.node.supervisor
        supervisor._state = "serving"
        supervisor._run = SimpleNamespace(
            pid=1, hello=HELLO, stats=heartbeat(), silent_s=None, handle=None, stage=None
        )
        node = FullNode(parts, control_plane)
        node.load(tenants=tenants, streams=streams)
        node.suffer(tenants=tenants)
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(giving_way())
            follow_directory(stack, control_plane, parts.node.bus)
            yield node
    finally:
        engine.dispose()
