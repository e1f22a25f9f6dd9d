"""The GPU: the bar of its SMs over the last minute, and beside it that of this moment."""

from __future__ import annotations

from pdmuxd.tui.client.wire import EngineEvent, StatsEvent
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading, said
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.sm_bar import SmUse, bar
from pdmuxd.tui.show.words import sms_in_words
from pdmuxd.tui.state.view import View

MINUTE_S = 60
LABEL_WIDTH = 8


def gpu(view: View, width: int, height: int) -> list[Line]:
    """A title, the minute's bar, the live bar, what the parts stand for."""
    stats, engine = view.state.stats, view.state.engine
    total = (stats.total_sms if stats else None) or (engine.total_sms if engine else None)
    device = (engine.device if engine else None) or "GPU"
    head = heading(view, f"{device}, {total} SMs" if total else device, width, _split(stats, engine))
    use = sm_use(stats)
    if use is None:
        return [head, line((said(view, "no engine says what its SMs do"), Role.DIM))]
    room = max(1, width - LABEL_WIDTH)
    mean = view.state.series.mean_shares(MINUTE_S, view.now_s) or (use.prefill_ratio, use.decode_ratio)
    minute = SmUse(
        total_sms=use.total_sms,
        prefill_sms=0,
        decode_sms=0,
        prefill_ratio=mean[0],
        decode_ratio=mean[1],
        is_fused=True,
    )
    rows = max(1, height - 3)
    label = f"{'1 min':<{LABEL_WIDTH}}"
    bars = [
        line((label if not row else " " * LABEL_WIDTH, Role.DIM)) + bar(minute, room, letters=view.letters)
        for row in range(rows)
    ]
    now = line((f"{'now':<{LABEL_WIDTH}}", Role.DIM)) + bar(use, room, letters=view.letters)
    return [head, *bars, now, _legend(mean, use, view.letters)]


def sm_use(stats: StatsEvent | None) -> SmUse | None:
    """What the bar shows; None while there is no engine."""
    if stats is None or not stats.total_sms or stats.sm_busy_prefill_ratio is None:
        return None
    return SmUse(
        total_sms=stats.total_sms,
        prefill_sms=stats.prefill_sms or 0,
        decode_sms=stats.decode_sms or 0,
        prefill_ratio=stats.sm_busy_prefill_ratio,
        decode_ratio=stats.sm_busy_decode_ratio or 0.0,
        is_fused=stats.mode in ("fused", "decode"),
    )


def _split(stats: StatsEvent | None, engine: EngineEvent | None) -> str:
    if stats is None or stats.partition_id is None:
        return ""
    return f"now {sms_in_words(stats.mode, stats.prefill_sms, stats.decode_sms)}"


def _legend(mean: tuple[float, float], use: SmUse, letters: bool) -> Line:
    prefill, decode, idle = ("P ", "D ", "· ") if letters else ("■ ", "■ ", "■ ")
    idle_ratio = max(0.0, 1.0 - mean[0] - mean[1])
    return line(
        (f"{'':<{LABEL_WIDTH}}", Role.PLAIN),
        (prefill, Role.PREFILL),
        "prefill ",
        (f"{formats.percent(mean[0])}   ", Role.STRONG),
        (decode, Role.DECODE),
        "decode ",
        (f"{formats.percent(mean[1])}   ", Role.STRONG),
        (idle, Role.IDLE),
        f"idle {formats.percent(idle_ratio)}",
        ("   of all SMs' time, 1 min", Role.DIM),
    )
