"""The GPU now: the bar of its SMs, what each part stands for, and how much is idle."""

from __future__ import annotations

from pdmuxd.tui.client.wire import Engine, Stats
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.sm_bar import SmUse, bar
from pdmuxd.tui.state.view import View


def gpu(view: View, width: int, height: int) -> list[Line]:
    """A title, the bar on all lines but one, the legend."""
    stats, engine = view.state.stats, view.state.engine
    total = (stats.total_sms if stats else None) or (engine.total_sms if engine else None)
    device = (engine.device if engine else None) or "GPU"
    head = heading(view, f"{device}, {total} SMs" if total else device, width, _split(stats, engine))
    use = sm_use(stats)
    if use is None:
        return [head, line(("no engine says what its SMs do", Role.DIM))]
    rows = max(1, height - 2)
    bars = [bar(use, width, letters=view.letters, is_named=row == rows // 2) for row in range(rows)]
    return [head, *bars, _legend(use, view.letters)]


def sm_use(stats: Stats | None) -> SmUse | None:
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


def _split(stats: Stats | None, engine: Engine | None) -> str:
    if stats is None or stats.partition_id is None:
        return ""
    if stats.mode == "fused":
        return "one batch on all SMs"
    if stats.mode == "decode":
        return "decode alone on all SMs"
    last = len(engine.partitions) - 1 if engine and engine.partitions else None
    return f"group {stats.partition_id} of 0 to {last}" if last is not None else f"group {stats.partition_id}"


def _legend(use: SmUse, letters: bool) -> Line:
    prefill, decode, idle = ("P ", "D ", "· ") if letters else ("■ ", "■ ", "■ ")
    split = "" if use.is_fused else " SMs"
    idle_ratio = max(0.0, 1.0 - use.prefill_ratio - use.decode_ratio)
    return line(
        (prefill, Role.PREFILL),
        "prefill ",
        (f"{use.prefill_sms}{split} " if split else "all SMs ", Role.STRONG),
        f"{formats.percent(use.prefill_ratio)}   ",
        (decode, Role.DECODE),
        "decode ",
        (f"{use.decode_sms}{split} " if split else "all SMs ", Role.STRONG),
        f"{formats.percent(use.decode_ratio)}   ",
        (idle, Role.IDLE),
        f"idle {formats.percent(idle_ratio)}",
        ("   of all SMs' time", Role.DIM),
    )
