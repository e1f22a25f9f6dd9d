"""Messages on the engine link, as msgspec structs.

Engine to daemon: Hello once per connection, then Ack, Measured, RequestRecord, IterationRecord,
EngineStats, TenantQueues. Daemon to engine: EngineSettings, Measure. Telemetry may be dropped when the
socket is full; the engine counts what it drops and says so in `EngineStats.dropped_records`
(invariant 10).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdmuxd.engine.core.observing import NOTHING_HIDDEN, Hidden
from pdmuxd.engine.core.roofline import SINGLE_GPU, RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
)
from pdmuxd.engine.core.types import DecodeShape, EngineLimits, PrefillShape
from pdmuxd.engine.link.durations import Counts
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.predictors import Predictors

LINK_PROTOCOL = 13
"""Both ends must agree; a mismatch is a LinkError that names the two versions."""
HOST_DELAY_S = 0.001
"""A step has been delayed by the host if the device waited for it for longer than this: a twentieth of the
strictest TBT target that is measured (20 ms), and half of what policies keep for a token's way to its client
(decision 0008)."""


class StallCause(StrEnum):
    """What a step that stalled is charged to: a part of the host's turn if the device waited for it, else
    what was new in the step."""

    INPUT = "input"
    """Requests were taken in, settings too, and room was made for long prompts."""
    RESULTS = "results"
    """Tokens were read and passed on, requests ended."""
    DECISION = "decision"
    LAUNCH = "launch"
    """Batches were formed and launched, prefills too."""
    COLLECTION = "collection"
    """Garbage was collected."""
    PREFILL_BEGINS = "prefill_begins"
    """The host was in time, and a prefill began beside the step."""
    SWITCH = "switch"
    """The same, and the step is the first one on its partition."""
    DEVICE = "device"
    """Nothing of these: the device took so long."""


class TenantSlo(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's targets, and its part of the device, as the engine needs them. Seconds, ratio in 0..1."""

    tenant: str
    ttft_fixed_s: float
    ttft_per_1k_new_tokens_s: float
    tbt_s: float
    attainment_ratio: float
    slo_version: int
    priority_class: PriorityClass = DEFAULT_PRIORITY_CLASS
    weight: float = DEFAULT_WEIGHT
    """Its part of what the tenants of its class share, in relation to their weights."""
    max_wait_ms: int | None = None
    """The longest wait in the queue; None: as long as the engine lets any request wait."""
    late_action: LateAction = DEFAULT_LATE_ACTION
    tbt_floor_s: float | None = None
    """Steps are planned for no stricter TBT target of this tenant, which costs the others too much; gaps are
    judged by its own. None: they are planned for its own."""
    e2e_s: float | None = None
    """From a request's arrival to its last token; None: no target."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, tag="settings"):
    """The whole of what an operator can change while serving; `version` only ever grows."""

    version: int
    policy: str
    tenants: tuple[TenantSlo, ...]
    predictors: Predictors | None = None
    """None: the engine's built-in profile, or the roofline if it has none."""
    partitions: tuple[tuple[int, int], ...] | None = None
    """(prefill_sms, decode_sms) of the splits to choose among; None: the engine's own."""
    shadow: str | None = None
    """A policy that decides on the same observations without acting."""
    delivery_s: float | None = None
    """By how much the p99 of gaps is longer at clients than in the engine, as measured; None: as the engine
    has it by itself."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The engine introduces itself."""

    protocol: int
    engine: str
    """`emulator` or `sglang`."""
    engine_version: str
    pid: int
    model: str
    device: str
    total_sms: int
    partitions: tuple[tuple[int, int], ...]
    """(prefill_sms, decode_sms) per group, as really obtained."""
    profile: str
    profile_provenance: str
    settings_version: int
    model_shape: ModelShape | None = None
    model_hash: str = ""
    """SHA-256 of the model's configuration; a profile is of one."""
    device_shape: DeviceShape | None = None
    """What the engine assumes of its GPU before anything is measured."""
    overheads: Overheads | None = None
    tensor_parallel: TensorParallel = SINGLE_GPU
    """How many such GPUs hold one copy of the model; a profile is of so many."""
    driver: str = ""
    """The GPU driver's version; empty where there is none."""
    sglang_version: str = ""
    variant: str = ""
    """What makes the engine's steps other than the model's shape and the GPU tell, such as quantized weights;
    empty for nothing."""
    kv_capacity_tokens: int = 0
    vocab_size: int = 0
    """Token ids are 0 to one less; 0 for an engine that does not say."""
    max_context_tokens: int = 0
    """Of a prompt and its answer together, as in force; 0 for an engine that does not say."""
    max_prefill_tokens: int = 16384
    max_decode_bs: int = 256
    max_whole_tokens: int | None = None
    """Of a prompt that memory holds whole; a longer one is prefilled in chunks. None: any, or not said."""
    waiting_window: int = 256
    max_set_aside: int = 8
    least_slice_tokens: int | None = None
    """What a slice of a layer has of a prompt's tokens at least; None if layers are not cut."""
    captured_decode_bs: tuple[int, ...] = ()
    """Batch sizes with a captured decode graph, growing; a batch in between is padded up to the next."""
    captured_fused_tokens: tuple[int, ...] = ()
    """The same of fused batches: tokens, those of decoding requests included."""
    fused_tile_rows: int = 0
    """Of the attention kernel of mixed batches: see RooflineModel."""
    can_measure: bool = False
    """Whether it answers Measure."""
    unsplit: str = ""
    """Why the model is never prefilled by layers beside decode; empty if it is."""
    delivery_s: float = 0.0
    """How much further apart two tokens reach a client than it makes them: 99% of them, at most."""

    @property
    def context_tokens(self) -> int | None:
        """How many tokens prompt and answer may have together; None if it did not say."""
        shaped = 0 if self.model_shape is None else self.model_shape.max_context_tokens
        return self.max_context_tokens or shaped or None

    @property
    def limits(self) -> EngineLimits:
        """What its loop shows to policies as its limits."""
        return EngineLimits(
            max_prefill_tokens=self.max_prefill_tokens,
            max_whole_tokens=self.max_whole_tokens,
            max_decode_bs=self.max_decode_bs,
            waiting_window=self.waiting_window,
            max_set_aside=self.max_set_aside,
            least_slice_tokens=self.least_slice_tokens,
        )

    @property
    def roofline(self) -> RooflineModel | None:
        """What the engine assumes before anything is measured; None if it does not tell its shapes."""
        if self.model_shape is None or self.device_shape is None or self.overheads is None:
            return None
        return RooflineModel(
            model=self.model_shape,
            device=self.device_shape,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
        )


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """Settings of `version` are in force (`error` is None) or were refused."""

    version: int
    error: str | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """The life of one request, sent once when it ends (invariant 5)."""

    request_id: str
    tenant: str
    outcome: str
    """`finished`, `aborted`, `failed` or `refused`."""
    new_tokens: int
    reused_tokens: int
    output_tokens: int
    queue_s: float | None
    """Arrival to the start of prefill; None if it never started."""
    ttft_s: float | None
    ttft_target_s: float
    tbt_target_s: float
    tbt_max_s: float | None
    tbt_p99_s: float | None
    tbt_gaps: int
    tbt_gaps_met: int
    retractions: int
    slo_version: int
    tbt_counts: Counts = ()
    """All gaps between its tokens, for percentiles over many requests."""
    cause: str = ""
    """Why it was refused: `deadline_unreachable` or `max_wait`."""
    decode_s: float = 0.0
    """First to last token; 0 without a second one."""
    e2e_s: float | None = None
    """Arrival to last token; None if it did not finish."""
    e2e_target_s: float | None = None
    """None: its whole answer had no target."""


class IterationRecord(msgspec.Struct, frozen=True, kw_only=True, tag="iteration"):
    """One engine step: what was decided, predicted and measured."""

    step: int
    now_s: float
    mode: str
    reason: str
    partition_id: int
    prefill_sms: int
    decode_sms: int
    decode_bs: int
    decode_reused_tokens: int
    prefill_new_tokens: int
    prefill_layers: int
    predicted_decode_s: float | None
    measured_step_s: float
    guard_ratio: float | None
    tbt_slack_s: float | None
    decode_steps: int = 1
    """How many decode steps were launched at once; 0 if none."""
    measured_decode_s: float | None = None
    """One decode step of a split, as the solo predictor counts it: without waiting for a late launch; None if
    none ran."""
    measured_prefill_s: float | None = None
    """What `prefill_layers` layers took with nothing beside them; None if they ran beside decode or not at
    all."""
    predicted_prefill_s: float | None = None
    """All layers of the batch, alone."""
    predicted_fused_s: float | None = None
    prefill_bs: int = 0
    prefill_reused_tokens: int = 0
    prefill_sum_new_squared: int = 0
    prefill_sum_new_times_reused: int = 0
    order: str = "arrival"
    """What decided who was admitted: `arrival`, `deadline`, `slack`, `fair_share` or `aged`."""
    sitting_out: int = 0
    """Decoding requests that were not in the step, since their TBT targets let them wait."""
    host_late_s: float | None = None
    """Of `measured_step_s`, what the device waited until the host had launched the step; None if the step
    before was not in flight."""
    stall_s: float = 0.0
    """What the step took beyond what was expected of it, if it stalled; else 0."""
    stall_cause: str | None = None
    """What that is charged to, a `StallCause`."""
    tbt_target_s: float | None = None
    """That the step was planned for; None if the policy did not say."""
    margin_ratio: float | None = None
    """Of a fused step, the ratio to its prediction that it was planned with."""
    stall_room_s: float | None = None
    """What was left for a stall; None if nothing was."""
    prefill_ratio: float | None = None
    """What prefills by layers take over their prediction, where that chose a split or fused steps."""
    split_ratio: float | None = None
    """What decode steps beside layers take over theirs, where decode got more SMs for it."""
    delivery_s: float | None = None
    """What was left of the target for delivery; None if nothing was."""

    @property
    def device_step_s(self) -> float:
        """Seconds of `measured_step_s` without what a late launch cost: what predictions are of."""
        return self.measured_step_s - (self.host_late_s or 0.0)

    @property
    def prefill(self) -> PrefillShape:
        """The prefill's part of the step."""
        return PrefillShape(
            bs=self.prefill_bs,
            new_tokens=self.prefill_new_tokens,
            reused_tokens=self.prefill_reused_tokens,
            sum_new_squared=self.prefill_sum_new_squared,
            sum_new_times_reused=self.prefill_sum_new_times_reused,
        )

    @property
    def decode(self) -> DecodeShape:
        """The decode batch; its longest context is not recorded."""
        return DecodeShape(bs=self.decode_bs, reused_tokens=self.decode_reused_tokens)


class ShadowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How a shadow policy's decisions differ from those in force; see `core.shadow.ShadowTally`."""

    policy: str
    decisions: int
    same: int
    other_mode: int
    other_split: int
    other_requests: int
    late: int
    shadow_late: int
    prefill_sms: int
    shadow_prefill_sms: int


class EngineStats(msgspec.Struct, frozen=True, kw_only=True, tag="stats"):
    """A heartbeat, a few times a second. Counters are totals since the engine started."""

    uptime_s: float
    settings_version: int
    policy: str
    running: int
    waiting: int
    prefilling: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    cached_tokens: int
    """Tokens held by the prefix cache, in use or evictable."""
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
    """Share of SM time that prefill work occupied since the last heartbeat."""
    sm_busy_decode_ratio: float
    dropped_records: int
    profile_id: int = 0
    """Of the predictors in force; 0 if they are the engine's own."""
    gpu_clock_mhz: int | None = None
    """Of the first GPU's SMs, within the last second; None if the driver does not say."""
    gpu_power_w: float | None = None
    shadow: ShadowCounts | None = None
    stalls: int = 0
    """Steps that took far longer than expected."""
    host_delays: int = 0
    """Steps for which the device waited for the host for longer than HOST_DELAY_S."""
    hidden: Hidden = NOTHING_HIDDEN
    """Of those that wait, whom the policy does not see or may not begin."""


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's requests that have no first token yet, in prefill or before it."""

    tenant: str
    waiting: int
    late: int
    """Of these, past their TTFT target."""
    oldest_wait_s: float


class TenantQueues(msgspec.Struct, frozen=True, kw_only=True, tag="queues"):
    """Goes with each heartbeat: every tenant with requests that have no first token yet."""

    queues: tuple[TenantQueue, ...]


ToDaemon = Hello | Ack | Measured | RequestRecord | IterationRecord | EngineStats | TenantQueues
ToEngine = EngineSettings | Measure
