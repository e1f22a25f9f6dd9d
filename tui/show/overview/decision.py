"""Why the SMs are split as they are."""

from __future__ import annotations

from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.reasons import BAD_REASONS, Why, in_words, numbers, split_text
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def decision(view: View, width: int, height: int) -> list[Line]:
    """A title, the reason in words, the numbers behind it."""
    why = current(view)
    split = split_text(why.mode, why.prefill_sms, why.decode_sms) if why.reason else "nothing yet"
    role = Role.BAD if why.reason in BAD_REASONS else Role.STRONG
    words = in_words(why.reason)
    said = wrap(f"{words[0].upper()}{words[1:]} ({why.reason})." if why.reason else "", width, role)
    shown = [heading(view, f"Decision: {split}", width), *said[: max(1, height - 2)]]
    figures = numbers(why)
    return [*shown, line((figures, Role.PLAIN))] if figures else shown


def current(view: View) -> Why:
    """The newest decision: the heartbeat's reason, with the numbers of the last of that reason."""
    stats = view.state.stats
    if stats is None or stats.reason is None:
        return Why(reason=None)
    tbt = stats.strictest_tbt
    newest = next((one for one in view.state.newest_decisions() if one.reason == stats.reason), None)
    return Why(
        reason=stats.reason,
        mode=stats.mode,
        prefill_sms=stats.prefill_sms or 0,
        decode_sms=stats.decode_sms or 0,
        predicted_ms=newest.predicted_ms if newest else None,
        guard_ratio=newest.guard_ratio if newest else None,
        slack_ms=newest.slack_ms if newest else None,
        tenant=tbt.tenant if tbt else None,
        tbt_ms=tbt.tbt_ms if tbt else None,
    )
