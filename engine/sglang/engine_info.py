"""What the engine is: the model's shape, the GPU, its limits; fixed before serving starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pdmuxd.engine.core.guard import UNMEASURED_RATIO, ContentionGuard
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import Partition, PartitionTable, SmRules
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import EngineLimits, PrefillSample, PrefillShape
from pdmuxd.engine.link.messages import LINK_PROTOCOL, Hello
from pdmuxd.engine.link.predictors import Predictors, contention_guard, latency_model

DELIVERY_S = 0.002
"""SGLang's way from the scheduler to the client: with 65 requests that decode, the p99 of the gaps between
tokens is 2.1 ms longer at the client than on the device (H200, Llama-8B, SGLang 0.5.23, 2026-11-22)."""

ACTIVATIONS_SHARE = 0.8
"""Share of the free memory that prefills may take. The rest is for decode and sampling, and some is lost to
fragmentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """What a prefill by layers takes of the GPU's memory: a layer's activations for all its tokens at once.

    134 KB per token with Llama-8B's shape (one H200, 2026-11-21), so 131,072 tokens take 16.4 GiB of the 20
    that SGLang leaves free, whose own chunks are of 8,192. What does not fit ends the engine.
    """

    free_bytes: int
    """Memory that other streams keep from earlier prefills counts as free: PyTorch gives it back first."""
    bytes_per_token: float

    @property
    def max_whole_tokens(self) -> int:
        """New tokens of a prefill that memory holds."""
        return int(ACTIVATIONS_SHARE * self.free_bytes / self.bytes_per_token)


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """All that policies and the daemon are told of the engine."""

    pid: int
    model_name: str
    model: ModelShape
    model_hash: str
    device: DeviceShape
    overheads: Overheads
    tensor_parallel: TensorParallel
    table: PartitionTable
    """The groups whose streams were made, with the SMs that they really got."""
    limits: EngineLimits
    kv_capacity_tokens: int
    vocab_size: int
    max_context_tokens: int
    captured_decode_bs: tuple[int, ...]
    captured_fused_tokens: tuple[int, ...]
    driver: str
    sglang_version: str
    variant: str
    """As in `Hello`."""
    can_measure: bool
    unsplit: str = ""
    """Why the model is not prefilled layer by layer; empty if it is."""
    fused_tile_rows: int = 0
    """Of the attention kernel: see RooflineModel."""

    def holding(self, activations: Activations) -> EngineInfo:
        """The engine's information with memory for these."""
        most = activations.max_whole_tokens
        batch = min(self.limits.max_prefill_tokens, most)
        return replace(self, limits=replace(self.limits, max_whole_tokens=most, max_prefill_tokens=batch))

    @cached_property
    def roofline(self) -> RooflineModel:
        """What is believed before anything was measured."""
        return RooflineModel(
            model=self.model,
            device=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
        )

    def prefill_sample(self, new_tokens: int, reused_tokens: int, measured_s: float) -> PrefillSample:
        """A measured prefill of one request, alone on all SMs, divided into compute and KV traffic.

        The device tells one duration only. The KV's bytes are known, so the traffic is taken from the
        roofline. Compute is taken from the roofline too, scaled by how the whole prefill compares with its
        prediction.
        """
        expected = self.roofline.prefill_terms(new_tokens, reused_tokens)
        shape = PrefillShape.of([(new_tokens, reused_tokens)])
        ratio = measured_s / self.roofline.prefill_cost(shape, self.device.total_sms).seconds
        return replace(expected, compute_s=expected.compute_s * ratio)

    def context(self, predictors: Predictors | None) -> PolicyContext:
        """What policies are built from; without predictors, the roofline (DuetServe 4.1).

        Raises: ProfileError for predictors that contradict themselves.
        """
        latency: LatencyModel = self.roofline
        guard = ContentionGuard(default_ratio=UNMEASURED_RATIO)
        if predictors is not None:
            latency = latency_model(predictors, self.roofline)
            guard = contention_guard(predictors)
        return PolicyContext(
            rules=self.table.rules,
            layers=self.model.layers,
            latency=latency,
            guard=guard,
            splits=self.table.splits,
            captures_prefill=False,
            delivery_s=DELIVERY_S,
        )

    def hello(self, *, version: str, settings_version: int) -> Hello:
        """How the engine introduces itself."""
        return Hello(
            protocol=LINK_PROTOCOL,
            engine="sglang",
            engine_version=version,
            pid=self.pid,
            model=self.model_name,
            device=self.device.name,
            total_sms=self.device.total_sms,
            partitions=tuple((group.prefill_sms, group.decode_sms) for group in self._groups_in_use),
            delivery_s=DELIVERY_S,
            profile="roofline",
            profile_provenance="derived: roofline of the model's shape and the GPU's data sheet",
            settings_version=settings_version,
            model_shape=self.model,
            model_hash=self.model_hash,
            device_shape=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            driver=self.driver,
            sglang_version=self.sglang_version,
            variant=self.variant,
            kv_capacity_tokens=self.kv_capacity_tokens,
            vocab_size=self.vocab_size,
            max_context_tokens=self.max_context_tokens,
            max_prefill_tokens=self.limits.max_prefill_tokens,
            max_decode_bs=self.limits.max_decode_bs,
            max_whole_tokens=self.limits.max_whole_tokens,
            waiting_window=self.limits.waiting_window,
            max_set_aside=self.limits.max_set_aside,
            least_slice_tokens=self.limits.least_slice_tokens,
            captured_decode_bs=self.captured_decode_bs,
            captured_fused_tokens=self.captured_fused_tokens,
            fused_tile_rows=self.fused_tile_rows,
            can_measure=self.can_measure,
            unsplit=self.unsplit,
        )

    @property
    def _groups_in_use(self) -> tuple[Partition, ...]:
        """Groups in use: those with all SMs alone where nothing is split, as a profile then measures no
        others."""
        return tuple(
            group
            for group in self.table.groups
            if not self.unsplit or not (group.prefill_sms and group.decode_sms)
        )


def planning_context(rules: SmRules, splits: tuple[Partition, ...]) -> PolicyContext:
    """Enough of a context to ask a policy for its partition table, before the model is loaded."""
    shape = DeviceShape(
        name="any",
        total_sms=rules.total_sms,
        min_sms=rules.min_sms,
        multiple_sms=rules.multiple_sms,
        flops=1e15,
        bytes_per_s=1e12,
        bandwidth_curvature=4.5,
    )
    model = ModelShape(
        name="any",
        layers=1,
        hidden=1,
        intermediate=1,
        heads=1,
        kv_heads=1,
        head_dim=1,
        vocab=1,
        max_context_tokens=1,
    )
    overheads = Overheads(
        graph_launch_s=0.0, layer_launch_s=0.0, host_step_s=0.0, layer_fixed_s=0.0, switch_s=0.0
    )
    return PolicyContext(
        rules=rules,
        layers=1,
        latency=RooflineModel(model=model, device=shape, overheads=overheads),
        guard=ContentionGuard(default_ratio=1.0),
        splits=splits,
    )
