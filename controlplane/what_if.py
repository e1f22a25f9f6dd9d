"""What would become of a TBT target: the live predictors and the guard, asked for a load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.forecast import Forecast, Load, forecast
from pdmuxd.engine.core.guard import ContentionGuard, guard_cell
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.messages import IterationRecord

DEFAULT_DECODE_BS, DEFAULT_CONTEXT_TOKENS, DEFAULT_NEW_TOKENS = 8, 1024, 2048
"""Assumed before anything has run."""

Source = Literal["request", "present", "mixed", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicting:
    """What the engine in force predicts with."""

    name: str
    """Of the profile."""
    latency: LatencyModel
    guard: ContentionGuard
    """As it was when the engine started."""


Predictors = Callable[[], Predicting | None]
"""Asked at each question; None while nothing is known to predict with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A target, and the load that it is asked for; what is None is taken from the present."""

    tbt_s: float
    decode_bs: int | None = None
    decode_context_tokens: int | None = None
    prefill_new_tokens: int | None = None
    prefill_reused_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """The load that an answer holds for."""

    decode_bs: int
    decode_context_tokens: int
    prefill_new_tokens: int
    prefill_reused_tokens: int
    source: Source

    @property
    def load(self) -> Load:
        """As the core sees it: one prompt."""
        return Load(
            prefill=PrefillShape.of([(self.prefill_new_tokens, self.prefill_reused_tokens)]),
            decode=DecodeShape(bs=self.decode_bs, reused_tokens=self.decode_bs * self.decode_context_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The answer."""

    wish: Wish
    assumed: Assumed
    predictors: str
    forecast: Forecast

    @property
    def text(self) -> str:
        """In one line."""
        chosen = self.forecast.chosen
        if chosen is None:
            return "the device has no split"
        split = f"{chosen.partition.decode_sms} SMs decode and {chosen.partition.prefill_sms} prefill"
        times = f"worst case {to_ms(chosen.worst_s):.3g} ms of {to_ms(self.wish.tbt_s):.3g} ms"
        return f"{split}: {times}" if chosen.meets else f"no split meets it; with most, {split}: {times}"


def what_if(wish: Wish, telemetry: Telemetry, predictors: Predictors) -> Outlook:
    """Answer for the engine in force. Raises: EngineError if none has introduced itself yet."""
    hello, predicting = telemetry.status().hello, predictors()
    if hello is None or predicting is None:
        raise EngineError("no engine has introduced itself yet, so there is nothing to predict with")
    assumed = assume(wish, telemetry)
    groups = [Partition(prefill_sms=p, decode_sms=d) for p, d in hello.partitions]

    def ratio(decode_sms: int, prefill: PrefillShape, decode: DecodeShape) -> float:
        in_use = telemetry.guard.ratio(guard_cell(decode_sms, prefill, decode))
        return in_use if in_use is not None else predicting.guard.ratio(decode_sms, prefill, decode)

    return Outlook(
        wish=wish,
        assumed=assumed,
        predictors=predicting.name,
        forecast=forecast(wish.tbt_s, assumed.load, groups, predicting.latency, ratio),
    )


def assume(wish: Wish, telemetry: Telemetry) -> Assumed:
    """Fill in what was not given from the newest decision that decoded, and the newest that prefilled."""
    decoded, prefilled = _present(telemetry)
    given = (wish.decode_bs, wish.decode_context_tokens, wish.prefill_new_tokens, wish.prefill_reused_tokens)
    context = decoded.decode_reused_tokens // decoded.decode_bs if decoded is not None else None
    source: Source = "present" if decoded is not None or prefilled is not None else "default"
    if any(value is not None for value in given):
        source = "request" if None not in given[:3] else "mixed"
    return Assumed(
        decode_bs=_first(wish.decode_bs, decoded.decode_bs if decoded else None, DEFAULT_DECODE_BS),
        decode_context_tokens=_first(wish.decode_context_tokens, context, DEFAULT_CONTEXT_TOKENS),
        prefill_new_tokens=_first(
            wish.prefill_new_tokens, prefilled.prefill_new_tokens if prefilled else None, DEFAULT_NEW_TOKENS
        ),
        prefill_reused_tokens=_first(
            wish.prefill_reused_tokens, prefilled.prefill_reused_tokens if prefilled else None, 0
        ),
        source=source,
    )


_LOOKED_AT = 2000


def _present(telemetry: Telemetry) -> tuple[IterationRecord | None, IterationRecord | None]:
    newest = [seen.record for seen in telemetry.decisions.snapshot()[-_LOOKED_AT:]]
    decoded = next((record for record in reversed(newest) if record.decode_bs), None)
    prefilled = next((record for record in reversed(newest) if record.prefill_new_tokens), None)
    return decoded, prefilled


def _first(given: int | None, present: int | None, otherwise: int) -> int:
    if given is not None:
        return given
    return present if present is not None else otherwise
