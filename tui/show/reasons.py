"""The reason of a decision in words, with the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass

from pdmuxd.tui.client.wire import TbtTarget
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import in_text
from pdmuxd.tui.show.words import REASONS, moved_by

SITS_OUT = "sits_out"
"""What decisions with requests that sit out are filtered by, whatever their reason."""
BAD_REASONS = frozenset({"tbt_infeasible", "predictions_wrong"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What a decision's sentence is made of; None where the policy did not predict."""

    reason: str | None
    mode: str | None = None
    prefill_sms: int = 0
    decode_sms: int = 0
    predicted_ms: float | None = None
    guard_ratio: float | None = None
    margin_ratio: float | None = None
    prefill_ratio: float | None = None
    split_ratio: float | None = None
    slack_ms: float | None = None
    tenant: str | None = None
    tbt_ms: float | None = None
    delivery_ms: float | None = None
    """What the step left of that target for delivery."""


def in_words(reason: str | None) -> str:
    """One sentence, also for a reason that is newer than this console."""
    return "nothing decided yet" if reason is None else REASONS.get(reason, reason.replace("_", " "))


def sitting_out(count: int, for_whom: TbtTarget | None) -> str:
    """`12 relaxed sit out for chat's 20 ms`; empty if nobody does."""
    if not count:
        return ""
    whose = f" for {in_text(for_whom.tenant)}'s {formats.plain(for_whom.tbt_ms)} ms" if for_whom else ""
    return f"{count} relaxed sit{'s' if count == 1 else ''} out{whose}"


def split_text(mode: str | None, prefill_sms: int, decode_sms: int) -> str:
    """Say which SMs each side has: `P 84 | D 48`."""
    if mode in ("fused", "decode", "idle"):
        return mode
    return f"P {prefill_sms} | D {decode_sms}"


def numbers(why: Why) -> str:
    """`31 ms predicted x 1.20 guard = 37 ms, target 40 ms (chat), slack 2.8 ms`, as far as known."""
    parts = []
    if why.predicted_ms is not None:
        text = f"{formats.ms(why.predicted_ms)} ms predicted"
        if why.guard_ratio is not None and why.mode == "split":
            worst = formats.ms(why.predicted_ms * why.guard_ratio)
            text += f" × {why.guard_ratio:.2f} guard = {worst} ms at worst"
        elif why.margin_ratio is not None:
            few = formats.ms(why.predicted_ms * why.margin_ratio)
            text += f" × {why.margin_ratio:.2f} margin = {few} ms for all but a few"
        parts.append(text)
    if why.tbt_ms is not None:
        whose = f" ({why.tenant})" if why.tenant else ""
        less = f" less {formats.ms(why.delivery_ms)} ms of delivery" if why.delivery_ms else ""
        parts.append(f"target {formats.ms(why.tbt_ms)} ms{less}{whose}")
    if why.slack_ms is not None:
        parts.append(f"slack {formats.ms(why.slack_ms)} ms")
    return "; ".join([text for text in (", ".join(parts), moved_by(why)) if text])
