"""What was decided in the last seconds, and why: shares, since a single decision lasts some milliseconds."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading, said
from pdmuxd.tui.show.lines import Line, clip, line
from pdmuxd.tui.show.reasons import BAD_REASONS, in_words, sitting_out, split_text
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

LAST = timedelta(seconds=10)


def decision(view: View, width: int, height: int) -> list[Line]:
    """A line for each reason, the most frequent first, with the split that it mostly chose."""
    head = heading(view, f"Decisions, last {LAST.seconds} s", width, "5 lists them")
    now = view.daemon_now
    counted: Counter[str] = Counter()
    splits: dict[str, Counter[str]] = {}
    out: dict[str, DecisionEvent] = {}
    for one in view.state.newest_decisions():
        if now is not None and now - one.at > LAST:
            break
        counted[one.reason] += one.count
        split = split_text(one.mode, one.prefill_sms, one.decode_sms)
        splits.setdefault(one.reason, Counter())[split] += one.count
        if one.sitting_out:
            out.setdefault(one.reason, one)
    if not counted:
        return [head, line((said(view, "nothing was decided"), Role.DIM))]
    total = sum(counted.values())
    lines = []
    for reason, times in counted.most_common(max(1, height - 1)):
        split = splits[reason].most_common(1)[0][0]
        newest = out.get(reason)
        who = sitting_out(newest.sitting_out, newest.sitting_out_for) if newest is not None else ""
        words = clip(f"{who}; {in_words(reason)}" if who else in_words(reason), max(8, width - 22))
        lines.append(
            line(
                (f"{formats.percent(times / total):>4} ", Role.STRONG),
                (f"{split:<14} ", Role.PLAIN),
                (words, Role.BAD if reason in BAD_REASONS else Role.PLAIN),
            )
        )
    return [head, *lines]
