"""What is measured: points, their samples, the engine that measures, and several samples of one point
together.

A host that stalls slows all that it launches meanwhile. All repeats of a short point are then slow alike, and
their median does not show it. Measuring the point again later does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import structs

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.measuring import Measure, Measured, MeasureMode
from pdmuxd.engine.link.messages import Hello

HIGH_PERCENTILE = 95.0
"""The percentile of the decode steps beside one prefill that the guard has to cover."""


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch, or a pair of batches, on a number of SMs. The fields are those of Measure."""

    mode: MeasureMode
    prefill_sms: int
    decode_sms: int
    prefill: tuple[tuple[int, int], ...] = ()
    decode: tuple[int, ...] = ()

    @property
    def prefill_shape(self) -> PrefillShape:
        """The prefill batch, possibly empty."""
        return PrefillShape.of(self.prefill)

    @property
    def decode_shape(self) -> DecodeShape:
        """The decode batch, possibly empty."""
        return DecodeShape.of(self.decode)

    @property
    def kv_tokens(self) -> int:
        """The KV pool that it needs."""
        prefill, decode = self.prefill_shape, self.decode_shape
        return prefill.new_tokens + prefill.reused_tokens + decode.reused_tokens + decode.bs

    def to_measure(self, point_id: int, repeats: int, *, warm_s: float = 0.0) -> Measure:
        return Measure(
            point_id=point_id,
            mode=self.mode,
            prefill_sms=self.prefill_sms,
            decode_sms=self.decode_sms,
            prefill=self.prefill,
            decode=self.decode,
            repeats=repeats,
            warm_s=warm_s,
        )


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a point took: medians over its repeats, so that one stall in three does not count.

    Of a pair whose prefill was over before a step beside it was, the decode times are None.
    """

    point: Point
    prefill_s: float | None = None
    decode_s: float | None = None
    """A decode step, or in mode `fused` the mixed batch."""
    decode_high_s: float | None = None
    """95th percentile of the decode steps."""
    confirmed: bool = False
    """Another measurement of the same point, later, took as long."""
    launch_s: tuple[float, ...] = ()
    """What the host took to launch each repeat, which then is not part of the time; empty where it is."""
    is_host_bound: bool = False
    """The device waited for the host in all repeats, though it was not to."""
    clock_mhz: int | None = None
    power_w: float | None = None
    """Of the SMs and of the GPU while it ran; None where the driver does not say."""

    @property
    def is_device_time(self) -> bool:
        """Whether nothing of the host's is in the time of a prefill or a fused batch."""
        return bool(self.launch_s) and not self.is_host_bound

    @classmethod
    def of(cls, point: Point, measured: Measured) -> Sample:
        """Raises: ProfileError if the engine could not measure, or answered a time that cannot be."""
        if measured.error is not None:
            raise ProfileError(f"the engine cannot measure: {measured.error}")
        for seconds in (*measured.prefill_s, *measured.decode_s):
            if not 0.0 < seconds < float("inf"):
                raise ProfileError(f"the engine measured {seconds} s, which no work takes")
        solo_s = measured.prefill_s if point.mode == "prefill" else measured.decode_s
        if point.mode != "colocated" and not solo_s:
            raise ProfileError(f"the engine measured nothing of a point of mode {point.mode}")
        return cls(
            point=point,
            prefill_s=_percentile(measured.prefill_s, 50.0),
            decode_s=_percentile(measured.decode_s, 50.0),
            decode_high_s=_percentile(measured.decode_s, HIGH_PERCENTILE),
            launch_s=tuple(round(one, 6) for one in measured.launch_s),
            is_host_bound=measured.is_host_bound,
            clock_mhz=measured.gpu_clock_mhz,
            power_w=measured.gpu_power_w,
        )

    @property
    def seconds(self) -> float:
        """What the solo predictor of this mode predicts. Raises: ProfileError if it was not measured."""
        seconds = self.prefill_s if self.point.mode == "prefill" else self.decode_s
        if seconds is None:
            raise ProfileError(f"a sample of mode {self.point.mode} lacks its time")
        return seconds

    @property
    def sms(self) -> int:
        """The SMs of what `seconds` is of."""
        return self.point.decode_sms if self.point.mode in ("decode", "colocated") else self.point.prefill_sms


def _percentile(seconds: tuple[float, ...], percent: float) -> float | None:
    return float(np.percentile(seconds, percent)) if seconds else None


KV_SHARE = 0.9
"""The share of the KV pool that a point may use: the rest is padding and half-full blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An engine that measures, from its Hello."""

    hello: Hello
    model: ModelShape
    device: DeviceShape
    overheads: Overheads

    @classmethod
    def of(cls, hello: Hello) -> Target:
        """Raises: ProfileError if the engine does not say enough of itself, or cannot measure."""
        if not hello.can_measure:
            raise ProfileError(f"the engine {hello.engine} cannot measure")
        if hello.model_shape is None or hello.device_shape is None or hello.overheads is None:
            raise ProfileError(f"the engine {hello.engine} does not tell the shapes of its model and device")
        if hello.kv_capacity_tokens <= 0:
            raise ProfileError(f"the engine {hello.engine} tells no KV capacity")
        return cls(hello=hello, model=hello.model_shape, device=hello.device_shape, overheads=hello.overheads)

    @property
    def prior(self) -> RooflineModel:
        """What is assumed before anything is measured: it sizes the points and their cost."""
        return RooflineModel(
            model=self.model,
            device=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.hello.fused_tile_rows,
        )

    @property
    def tensor_parallel(self) -> TensorParallel:
        """The GPUs that are measured together; one as a rule."""
        return self.hello.tensor_parallel

    @property
    def splits(self) -> tuple[tuple[int, int], ...]:
        """Groups with SMs on both sides."""
        return tuple((p, d) for p, d in self.hello.partitions if p and d)

    @property
    def prefill_sizes(self) -> tuple[int, ...]:
        """SM counts that prefill may have, largest first."""
        return _distinct([self.hello.total_sms, *(p for p, _ in self.hello.partitions)])

    @property
    def decode_sizes(self) -> tuple[int, ...]:
        """SM counts that decode may have, largest first."""
        return _distinct([self.hello.total_sms, *(d for _, d in self.hello.partitions)])

    @property
    def kv_tokens(self) -> int:
        """KV tokens that a point may need."""
        return int(self.hello.kv_capacity_tokens * KV_SHARE)

    @property
    def max_new_tokens(self) -> int:
        """New tokens of the largest prefill to measure."""
        return min(self.hello.max_prefill_tokens, self.model.max_context_tokens, self.kv_tokens)


def _distinct(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({size for size in sizes if size > 0}, reverse=True))


AGREEING = 0.1
"""Two measurements of one point that differ by less than this confirm each other. Stalls add more; the
scatter of launching adds less."""


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """One sample per solo point, in the order in which the points were first measured; pairs unchanged.

    A sample does not count as confirmed if another point with more work took less: the host was slow then.
    """
    by_point: dict[Point, list[Sample]] = {}
    for sample in samples:
        by_point.setdefault(sample.point, []).append(sample)
    together: list[Sample] = []
    for point, replicates in by_point.items():
        together += replicates if point.mode == "colocated" else [typical(replicates)]
    return [
        structs.replace(one, confirmed=False)
        if one.confirmed and any(is_dominated(one, other) for other in together)
        else one
        for one in together
    ]


def is_dominated(sample: Sample, other: Sample) -> bool:
    """Whether the other sample took clearly less, though it is at least as much work on no more SMs.

    Only for work that is launched layer by layer: a graph of a larger decode batch may really be faster.
    """
    return (
        sample.point.mode in ("prefill", "fused")
        and not sample.is_device_time
        and other.point.mode == sample.point.mode
        and other.sms <= sample.sms
        and other.seconds * (1.0 + AGREEING) < sample.seconds
        and all(mine <= theirs for mine, theirs in zip(_work(sample.point), _work(other.point), strict=True))
    )


def _work(point: Point) -> tuple[int, ...]:
    """All that a batch of one mode takes time for."""
    prefill, decode = point.prefill_shape, point.decode_shape
    return (
        prefill.new_tokens,
        prefill.reused_tokens,
        prefill.sum_new_squared,
        prefill.sum_new_times_reused,
        decode.bs,
        decode.reused_tokens,
    )


def typical(replicates: Sequence[Sample]) -> Sample:
    """The median of those that agree with the fastest: stalls only ever add time."""
    fastest = min(replicates, key=lambda sample: sample.seconds)
    agreeing = [one.seconds for one in replicates if one.seconds <= fastest.seconds * (1.0 + AGREEING)]
    if len(agreeing) == 1:
        return fastest
    seconds = statistics.median(agreeing)
    if fastest.point.mode == "prefill":
        return structs.replace(fastest, prefill_s=seconds, confirmed=True)
    return structs.replace(fastest, decode_s=seconds, confirmed=True)
