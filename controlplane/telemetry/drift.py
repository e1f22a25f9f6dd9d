"""How far what is measured is from what was predicted, per kind of work and SM count."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import quantiles
from typing import Literal

from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import IterationRecord

WINDOW_S = 600.0
LIMIT_RATIO = 0.15
"""A median this far from 1 is drift; fits are accepted up to an error of 5%."""
ENOUGH = 100
_KEPT = 512

Work = Literal["decode", "prefill", "fused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Measured over predicted, over the last ten minutes; the errors are distances from 1."""

    work: Work
    sms: int
    samples: int
    p50_ratio: float
    p90_ratio: float
    error_p50_ratio: float
    error_p90_ratio: float

    @property
    def is_off(self) -> bool:
        """Whether the predictor can no longer be believed."""
        return self.samples >= ENOUGH and abs(self.p50_ratio - 1.0) > LIMIT_RATIO


class DriftWatch:
    """The latest pairs of predicted and measured. `all` may be called in any thread."""

    def __init__(self) -> None:
        self.layers = 0
        """Of the model; 0 while that is not known, and then prefill is not compared."""
        self._ratios: dict[tuple[Work, int], deque[tuple[float, float]]] = {}

    def forget(self) -> None:
        """Another engine, perhaps with other predictors."""
        self._ratios = {}

    def add(self, record: IterationRecord, now_s: float) -> None:
        """Compare what was predicted for work alone with what it took alone."""
        for work, sms, predicted_s, measured_s in self._pairs(record):
            if predicted_s and predicted_s > 0.0 and measured_s is not None:
                kept = self._ratios.setdefault((work, sms), deque(maxlen=_KEPT))
                kept.append((now_s, measured_s / predicted_s))

    def all(self, now_s: float) -> tuple[Drift, ...]:
        """Every pair that has samples."""
        found = (
            _drift(work, sms, [ratio for at_s, ratio in tuple(kept) if now_s - at_s <= WINDOW_S])
            for (work, sms), kept in sorted(self._ratios.items())
        )
        return tuple(each for each in found if each is not None)

    def _pairs(self, record: IterationRecord) -> Iterator[tuple[Work, int, float | None, float | None]]:
        if record.mode == Mode.FUSED:
            # A fused batch has all SMs, on whichever side of the group the engine counts them, or on both.
            yield (
                "fused",
                max(record.prefill_sms, record.decode_sms),
                record.predicted_fused_s,
                record.device_step_s,
            )
            return
        if not record.prefill_new_tokens and record.decode_bs:
            # Beside a prefill it is slowed by contention, which is the guard's business.
            each_s = record.device_step_s / max(1, record.decode_steps)
            measured_s = record.measured_decode_s if record.measured_decode_s is not None else each_s
            yield "decode", record.decode_sms, record.predicted_decode_s, measured_s
        if record.predicted_prefill_s and self.layers and record.prefill_layers:
            share_s = record.predicted_prefill_s * record.prefill_layers / self.layers
            yield "prefill", record.prefill_sms, share_s, record.measured_prefill_s


def _drift(work: Work, sms: int, ratios: list[float]) -> Drift | None:
    if not ratios:
        return None
    errors = [abs(ratio - 1.0) for ratio in ratios]
    (p50, p90), (error_p50, error_p90) = _p50_p90(ratios), _p50_p90(errors)
    return Drift(
        work=work,
        sms=sms,
        samples=len(ratios),
        p50_ratio=p50,
        p90_ratio=p90,
        error_p50_ratio=error_p50,
        error_p90_ratio=error_p90,
    )


def _p50_p90(values: list[float]) -> tuple[float, float]:
    if len(values) == 1:
        return round(values[0], 4), round(values[0], 4)
    cuts = quantiles(values, n=10, method="inclusive")
    return round(cuts[4], 4), round(cuts[8], 4)
