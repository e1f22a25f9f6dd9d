"""The engine, the policies and the version over REST."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from typing import Self

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.api.slos import TBT_RULE
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.node.engine_status import EngineState, EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.policies.registry import known_policies
from pdmuxd.engine.link.messages import Hello


class PartitionOut(BaseModel):
    """The SMs of one partition group."""

    prefill_sms: int = Field(examples=[96])
    decode_sms: int = Field(examples=[36])


class EngineInfoOut(BaseModel):
    """How the engine introduced itself."""

    engine: str = Field(description="`emulator` or `sglang`.")
    engine_version: str = Field(examples=["0.1.0"])
    model: str = Field(examples=["llama-3.1-8b"])
    device: str = Field(examples=["H200"])
    total_sms: int = Field(examples=[132])
    partitions: list[PartitionOut] = Field(description="By group, as really obtained from the device.")
    profile: str = Field(examples=["h200-llama-8b"])
    profile_provenance: str = Field(description="Where the latencies come from: measured, or derived.")

    @classmethod
    def of(cls, hello: Hello) -> Self:
        partitions = [PartitionOut(prefill_sms=p, decode_sms=d) for p, d in hello.partitions]
        return cls(**{**msgspec.structs.asdict(hello), "partitions": partitions})


class HiddenOut(BaseModel):
    """How many waiting requests the policy does not see or may not begin, by reason; each has one."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"policy_change": 0, "kv_denied": 2, "long_prompt": 1, "beyond_window": 40}]
        }
    )

    policy_change: int = Field(
        description="Another policy waits for the prefill under way; nothing is begun until then."
    )
    kv_denied: int = Field(description="The engine had no KV for them, and has given back none since.")
    long_prompt: int = Field(
        description="Memory does not hold the prompt whole, and a prefill by layers is under way."
    )
    beyond_window: int = Field(description="More wait than the policy is shown.")


class EngineStatsOut(BaseModel):
    """The engine's last heartbeat; counters are totals since it started."""

    uptime_s: float
    running: int
    waiting: int
    prefilling: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    cached_tokens: int
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    steps: int
    switches: int
    preemptions: int
    retractions: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    sm_busy_prefill_ratio: float
    sm_busy_decode_ratio: float
    dropped_records: int
    profile_id: int
    gpu_clock_mhz: int | None = Field(description="Of the first GPU's SMs; null if the driver does not say.")
    gpu_power_w: float | None
    stalls: int = Field(description="Steps that took far longer than expected.")
    host_delays: int = Field(description="Steps for which the device waited for the host.")
    hidden: HiddenOut = Field(description="Of those that wait, whom the policy does not see, by reason.")


class TbtOut(BaseModel):
    """A tenant's TBT target."""

    tenant: str = Field(examples=["chat"])
    tbt_ms: float = Field(examples=[40])


class EngineOut(BaseModel):
    """The engine at this instant."""

    state: EngineState
    since: datetime = Field(description="When this state began.")
    pid: int | None
    restarts: int
    last_error: str | None
    held: bool = Field(description="An operator drains it; it serves again when it is resumed.")
    policy: str | None = Field(
        examples=["muxwise"], description="In force in the engine; null before its first heartbeat."
    )
    wanted_version: int = Field(
        examples=[17], description="The settings version that was last sent to the engine."
    )
    acked_version: int = Field(
        examples=[17], description="The settings version that the engine has confirmed."
    )
    strictest_tbt: TbtOut | None = Field(description=f"The strictest of the enabled tenants. {TBT_RULE}")
    engine: EngineInfoOut | None
    stats: EngineStatsOut | None


class PolicyOut(BaseModel):
    """A scheduling policy."""

    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["chunked"])
    syntax: str = Field(examples=["chunked:N"])
    summary: str = Field(examples=["one fused batch of at most N tokens on all SMs"])
    example: str = Field(examples=["chunked:512"])


class VersionOut(BaseModel):
    """Which pdmuxd this is."""

    version: str = Field(examples=["0.1.0"])
    settings_version: int = Field(
        examples=[17], description="Grows by one with every change of a tenant, key or SLO."
    )


def engine_routes(control_plane: ControlPlane, engine_status: Callable[[], EngineStatus]) -> APIRouter:
    """`/engine`, `/policies` and `/version`."""
    router = admin_router(tags=["engine"])

    @router.get("/engine", responses=documented())
    def get_engine() -> EngineOut:
        """Show the engine: its state, its settings, its partitions and its last heartbeat."""
        status = engine_status()
        stats = status.stats
        return EngineOut(
            state=status.state,
            since=datetime.fromtimestamp(status.since_s, UTC),
            pid=status.pid,
            restarts=status.restarts,
            last_error=status.last_error,
            held=status.is_held,
            policy=stats.policy if stats else None,
            wanted_version=status.wanted_version,
            acked_version=status.acked_version,
            strictest_tbt=_strictest(control_plane),
            engine=EngineInfoOut.of(status.hello) if status.hello else None,
            stats=EngineStatsOut.model_validate(msgspec.to_builtins(stats)) if stats else None,
        )

    @router.get("/policies", responses=documented())
    def list_policies() -> list[PolicyOut]:
        """List the policies that the setting `engine.policy` may name."""
        return [PolicyOut.model_validate(info) for info in known_policies()]

    @router.get("/version", responses=documented())
    def get_version() -> VersionOut:
        """Show the version of pdmuxd and of the settings that it serves by; needs no database."""
        return VersionOut(
            version=installed_version("pdmuxd"), settings_version=control_plane.directory.version
        )

    return router


def _strictest(control_plane: ControlPlane) -> TbtOut | None:
    enabled = (tenant for tenant in control_plane.directory.tenants.values() if tenant.enabled)
    strictest = min(enabled, key=lambda tenant: (tenant.slo.tbt_s, tenant.name), default=None)
    if strictest is None:
        return None
    return TbtOut(tenant=strictest.name, tbt_ms=to_ms(strictest.slo.tbt_s))
