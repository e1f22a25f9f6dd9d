"""Solo-run latency: the interface that policies predict with, and the fitted linear predictors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.types import DecodeShape, PrefillShape


class LatencyModel(Protocol):
    """Predicted seconds of work that runs alone on `sms` SMs."""

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """All layers of a prefill batch."""

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        """All layers of a prefill of one request: what a queue is ordered by, so it must be cheap."""

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """One decode step, host work included: the gap between two tokens."""

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """One batch of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCoefficients:
    """MuxWise eq. 1: seconds per squared token, per new-by-reused token pair, per new token, and fixed."""

    per_new_squared_s: float
    per_new_times_reused_s: float
    per_new_s: float
    fixed_s: float

    def predict_s(self, shape: PrefillShape) -> float:
        """Seconds for the whole batch."""
        return (
            self.per_new_squared_s * shape.sum_new_squared
            + self.per_new_times_reused_s * shape.sum_new_times_reused
            + self.per_new_s * shape.new_tokens
            + self.fixed_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCoefficients:
    """MuxWise eq. 2: seconds per reused token, per request of the batch, and fixed."""

    per_reused_s: float
    per_request_s: float
    fixed_s: float

    def predict_s(self, shape: DecodeShape) -> float:
        """Seconds for one step."""
        return self.per_reused_s * shape.reused_tokens + self.per_request_s * shape.bs + self.fixed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRunModel:
    """One pair of fitted predictors per SM count; what they do not cover goes to `fallback`.

    Raises: ProfileError when asked for a negative SM count.
    """

    prefill: Mapping[int, PrefillCoefficients]
    decode: Mapping[int, DecodeCoefficients]
    fallback: LatencyModel

    def prefill_s(self, shape: PrefillShape, sms: int) -> float:
        """Source: MuxWise eq. 1."""
        fitted = self.prefill.get(sms)
        return (
            fitted.predict_s(shape) if fitted is not None else self.fallback.prefill_s(shape, _positive(sms))
        )

    def request_s(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        """MuxWise eq. 1 for a batch of one."""
        fitted = self.prefill.get(sms)
        if fitted is None:
            return self.fallback.request_s(new_tokens, reused_tokens, _positive(sms))
        return (
            fitted.per_new_squared_s * new_tokens + fitted.per_new_times_reused_s * reused_tokens
        ) * new_tokens + (fitted.per_new_s * new_tokens + fitted.fixed_s)

    def decode_s(self, shape: DecodeShape, sms: int) -> float:
        """Source: MuxWise eq. 2."""
        fitted = self.decode.get(sms)
        return (
            fitted.predict_s(shape) if fitted is not None else self.fallback.decode_s(shape, _positive(sms))
        )

    def fused_s(self, prefill: PrefillShape, decode: DecodeShape, sms: int) -> float:
        """Mixed batches have no fit: the fallback (a roofline) predicts them."""
        return self.fallback.fused_s(prefill, decode, sms)


def _positive(sms: int) -> int:
    if sms <= 0:
        raise ProfileError(f"no latency on {sms} SMs")
    return sms
