"""What is measured: a point, and the sample that measuring it gave."""

from __future__ import annotations

import msgspec
import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.measuring import Measure, Measured, MeasureMode

HIGH_PERCENTILE = 95.0
"""Of the decode steps beside one prefill: what the guard has to cover."""


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
        """The question to the engine."""
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
