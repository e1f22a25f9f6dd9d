"""A daemon's telemetry and metrics on the emulated engine, in one process and in the engine's own time.

Requests go through the telemetry as the gateway tells of them, and end when the engine has made their last
token; what the engine reports comes by the reporter of its own process. No clock runs: seconds of load take
as long as their sums do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engines import Memory, engine, request
from telemetry_feeds import START_S, directory

from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.telemetry.telemetry import TICK_S, Telemetry
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import collectors
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.telemetry import Reporter, hello
from pdmuxd.engine.link.messages import EngineStats, IterationRecord, RequestRecord
from pdmuxd.engine.loop.requests import Target


class EmulatedNode:
    """Tenants with their TBT targets in seconds; TTFT targets are those of `directory`."""

    def __init__(self, **tbt_s: float) -> None:
        self.now_s = 0.0
        self.stats: EngineStats | None = None
        self.open: dict[str, int] = dict.fromkeys(tbt_s, 0)
        self._begun: dict[str, str] = {}
        self._engine = engine(observer=_Ends(self), step_records=True)
        self._hello = hello(self._engine, model="llama-8b", version="0.1.0")
        self.metrics = Metrics()
        self.telemetry = Telemetry(
            clock=lambda: START_S + self.now_s,
            status=self.status,
            in_flight=lambda: self.open,
            on_settled=self.metrics.request_judged,
            on_outcome=self.metrics.request_over,
        )
        known = directory(**tbt_s)
        self.telemetry.on_directory(known)
        self._engine.apply_settings(
            version=known.version,
            policy="muxwise",
            slos={
                name: Target(slo=tenant.slo, version=tenant.slo_version)
                for name, tenant in known.tenants.items()
            },
        )
        self.metrics.use_tenants(known.tenants)
        for collector in collectors(self.telemetry, self.metrics.tenants, node_limit=1024):
            self.metrics.registry.register(collector)
        self._reporter = Reporter(self._engine, self, lambda: None)  # type: ignore[arg-type]
        self.telemetry.on_message(self._hello)
        self.telemetry.on_state("serving", None)

    def status(self) -> EngineStatus:
        return replace(NO_ENGINE, state="serving", since_s=START_S, hello=self._hello, stats=self.stats)

    @property
    def has_told_of_its_split(self) -> bool:
        """Whether the heartbeat and the last step that was read are of one partition."""
        told = self.telemetry.stats_event(self.telemetry.clock())
        return self.stats is not None and told.partition_id == self.stats.partition_id

    def ask(self, name: str, tenant: str, *, input_tokens: int, output_tokens: int) -> None:
        """A request comes now."""
        told = self.telemetry
        told.on_begin(name, tenant=tenant, path="/v1/completions")
        told.on_read(name, is_streamed=True, body_bytes=4 * input_tokens, read_s=0.0)
        told.on_sent(name)
        self.open[tenant] += 1
        asked = request(name, input_tokens, output_tokens, arrival_s=self.now_s, tenant=tenant)
        self._engine.submit(asked, self.now_s)

    def turn(self) -> None:
        """A tenth of a second passes, and the daemon looks."""
        self.now_s = round(self.now_s + TICK_S, 6)
        self._engine.advance(self.now_s)
        self._reporter.send_steps()
        self._reporter.send_stats()
        self.telemetry.tick()

    def send(self, message: Any) -> bool:
        """What the engine's end of the link does."""
        match message:
            case RequestRecord():
                self.metrics.request_record(message)
                self.telemetry.on_request(message)
                self.open[message.tenant] -= 1
                self.telemetry.on_answered(message.request_id, status=200)
                return True
            case IterationRecord():
                self.metrics.decision(message)
            case EngineStats():
                self.stats = message
                self.metrics.engine_stats(message)
        self.telemetry.on_message(message)
        return True

    @property
    def dropped(self) -> int:
        """The link loses nothing."""
        return 0

    def begun(self, tenant: str) -> int:
        """How many requests of it have their first token and go on."""
        return sum(of == tenant for of in self._begun.values())

    def first_token(self, request: EmulatedRequest) -> None:
        self._begun[request.request_id] = request.tenant
        self.telemetry.on_first_byte(request.request_id)

    def ended(self, request: EmulatedRequest) -> None:
        self._begun.pop(request.request_id, None)
        self._reporter.send_request(request)


class _Ends(Memory):
    """Passes on what the gateway would see."""

    def __init__(self, node: EmulatedNode) -> None:
        super().__init__()
        self._node = node

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        super().on_first_token(request, now_s)
        self._node.first_token(request)

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        super().on_end(request, now_s)
        self._node.ended(request)
