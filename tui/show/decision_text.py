"""One decision in words."""

from __future__ import annotations

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.reasons import BAD_REASONS, Why, in_words, numbers, sitting_out
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def decision_text(one: DecisionEvent | None, view: View, width: int) -> list[Line]:
    """Lines for the decision, its reason, its numbers and its batches."""
    if one is None:
        return [heading(view, "Why", width)]
    why = Why(
        reason=one.reason,
        mode=one.mode,
        predicted_ms=one.predicted_ms,
        guard_ratio=one.guard_ratio,
        margin_ratio=one.margin_ratio,
        prefill_ratio=one.prefill_ratio,
        split_ratio=one.split_ratio,
        slack_ms=one.slack_ms,
        tbt_ms=one.tbt_target_ms,
        delivery_ms=one.delivery_ms,
    )
    role = Role.BAD if one.reason in BAD_REASONS else Role.STRONG
    out = sitting_out(one.sitting_out, one.sitting_out_for)
    return [
        heading(view, f"Why decision {one.seq}", width, f"{one.count} alike within 100 ms"),
        *wrap(f"{in_words(one.reason)} ({one.reason})", width, role),
        *([line((out, Role.WARN))] if out else []),
        *wrap(numbers(why) or "nothing was predicted", width),
        line(
            (
                f"decode {one.decode_bs} requests, context {formats.count(one.decode_reused_tokens)}, "
                f"{one.decode_steps} step{'' if one.decode_steps == 1 else 's'}; "
                f"prefill {formats.count(one.prefill_new_tokens)} new tokens, {one.prefill_layers} layers",
                Role.DIM,
            )
        ),
    ]
