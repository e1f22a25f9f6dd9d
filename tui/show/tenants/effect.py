"""What the last change did: the split and the targets met, the minute before and since."""

from __future__ import annotations

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.wire import EffectMeasuredOut, EffectOut, SmUseOut, StandingOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, Run, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.view import View

SHOWN_FOR_S = 1800
LEAST_REQUESTS = 20
"""Of another tenant, before and since: fewer say nothing of whether it moved."""
LEAST_HEIGHT = 5
"""In which who lost by the change comes before who has the SMs."""
MOVED_SHARE = 0.01
MOVED_P99 = 0.2
COLUMNS = (
    Column("tenant", 0),
    Column("TTFT met", 15, "right"),
    Column("p99, ms", 13, "right"),
    Column("TBT met", 15, "right"),
    Column("p99, ms", 13, "right"),
)
ARROW = " → "


def recent_effect(name: str, view: View) -> EffectOut | None:
    """The last change of this tenant, or of what concerns all, while it is worth a look."""
    answer, now = known(view.state.answers.effects.get(name)), view.daemon_now
    last = answer.effects[0] if answer is not None and answer.effects else None
    if last is None or now is None or (now - last.at).total_seconds() > SHOWN_FOR_S:
        return None
    return last


def effect(name: str, view: View, width: int, height: int) -> list[Line]:
    """Draw its heading, the SMs, this tenant, and the others that moved, most lost first."""
    last, now = recent_effect(name, view), view.daemon_now
    if last is None or now is None:
        return [heading(view, "What the last change did", width), line(("no change of late", Role.DIM))]
    what = printable(last.text) + (" of targets" if last.kind == "slo" and last.tenant is None else "")
    age = formats.duration((now - last.at).total_seconds())
    after = last.after
    if after is None:
        head = heading(view, f"What it did: {what}", width, f"{age} ago")
        return [head, line((_why_not(last, age), Role.DIM))]
    since = formats.duration(after.length_ms / 1000)
    note = f"{age} ago: minute before → {since}" + (" since" if last.state == "measuring" else " after it")
    lines = [heading(view, f"What it did: {what}", width, note)]
    if height > LEAST_HEIGHT:
        lines.append(_sms(last.before.sms, after.sms, is_mixed=last.mixed))
    lines.append(_replayed(name, last, after))
    lines.append(row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, width))
    lines.append(row(_cells(_standing(last.before, name), _standing(after, name), view), COLUMNS, width))
    others = _moved(name, last.before, after)
    lines += [row(_cells(before, since_then, view), COLUMNS, width) for before, since_then in others]
    if not others:
        said = f"no other tenant moved by {MOVED_SHARE:.0%} of what is judged, or its p99 by {MOVED_P99:.0%}"
        lines.append(line((said, Role.DIM)))
    return lines[:height]


def _why_not(last: EffectOut, age: str) -> str:
    if last.state == "overtaken":
        return "not compared: another change, or an engine's start, came within a minute"
    return f"too early to compare: {age} since, a minute is needed"


def _replayed(name: str, last: EffectOut, after: EffectMeasuredOut) -> Line:
    """The load, which may have done what looks like the change's work; then the change's work alone."""
    rates = [
        formats.rate(1000 * _standing(one, name).requests / one.length_ms)
        for one in (last.before, after)
        if one.length_ms
    ]
    load, replay = f"{ARROW.join(rates)}/s", last.replay
    if replay is None:
        return line(("load    ", Role.DIM), load)
    own = next((one for one in replay.tenants if one.tenant == name), None)
    if own is None:
        why = replay.why_not or "no request of it"
        return line(("load    ", Role.DIM), load, (f"; not replayed: {why}", Role.DIM))
    ttft = _change(own.ttft_before_ratio, own.ttft_after_ratio, 1)
    tbt = _change(own.tbt_before_ratio, own.tbt_after_ratio, 1)
    return line(("load    ", Role.DIM), f"{load}; on the same requests TTFT {ttft}, TBT {tbt}")


def _sms(before: SmUseOut, after: SmUseOut, *, is_mixed: bool) -> Line:
    runs: list[Run] = [("SMs     ", Role.DIM), *_split(before), (ARROW, Role.PLAIN), *_split(after)]
    if before.split_ratio or after.split_ratio:
        shares = _change(before.split_ratio, after.split_ratio, 0)
        runs.append((f" in splits, {shares} of steps", Role.PLAIN))
    busy = _change(_busy(before), _busy(after), 0)
    runs.append((f"; busy {busy}", Role.PLAIN))
    if is_mixed:
        runs.append(("; another change was in the minute before", Role.WARN))
    return line(*runs)


def _split(use: SmUseOut) -> list[Run]:
    if use.prefill_sms is None or use.decode_sms is None:
        fused = use.fused_ratio
        return [("no split" if not fused else f"fused {formats.percent(fused)}", Role.PLAIN)]
    return [
        (f"P {use.prefill_sms:.0f}", Role.PREFILL),
        (" | ", Role.DIM),
        (f"D {use.decode_sms:.0f}", Role.DECODE),
    ]


def _busy(use: SmUseOut) -> float | None:
    if use.prefill_busy_ratio is None or use.decode_busy_ratio is None:
        return None
    return use.prefill_busy_ratio + use.decode_busy_ratio


def _standing(measured: EffectMeasuredOut, tenant: str) -> StandingOut:
    """The standing of one tenant; an empty one if it had no traffic."""
    return next((one for one in measured.tenants if one.tenant == tenant), StandingOut(tenant=tenant))


def _moved(
    name: str, before: EffectMeasuredOut, after: EffectMeasuredOut
) -> list[tuple[StandingOut, StandingOut]]:
    pairs = [(one, _standing(after, one.tenant)) for one in before.tenants if one.tenant != name]
    enough = [pair for pair in pairs if min(one.requests for one in pair) >= LEAST_REQUESTS]
    return sorted((pair for pair in enough if _has_moved(*pair)), key=lambda pair: _gain(*pair))


def _has_moved(before: StandingOut, after: StandingOut) -> bool:
    shares = (
        (before.ttft_attainment_ratio, after.ttft_attainment_ratio),
        (before.tbt_attainment_ratio, after.tbt_attainment_ratio),
    )
    p99s = ((before.ttft_p99_ms, after.ttft_p99_ms), (before.tbt_p99_ms, after.tbt_p99_ms))
    return any(
        old is not None and new is not None and abs(new - old) >= MOVED_SHARE for old, new in shares
    ) or any(old and new is not None and abs(new / old - 1.0) >= MOVED_P99 for old, new in p99s)


def _gain(before: StandingOut, after: StandingOut) -> float:
    """The gain of the share met, of the target that lost more; below 0 where one did."""
    return min(
        (after.ttft_attainment_ratio or 0.0) - (before.ttft_attainment_ratio or 0.0),
        (after.tbt_attainment_ratio or 0.0) - (before.tbt_attainment_ratio or 0.0),
    )


def _cells(before: StandingOut, after: StandingOut, view: View) -> list[Cell]:
    loads = view.state.tenants.tenants if view.state.tenants is not None else ()
    target = next((one.target_ratio for one in loads if one.tenant == before.tenant), None)
    ttft = before.ttft_attainment_ratio, after.ttft_attainment_ratio
    tbt = before.tbt_attainment_ratio, after.tbt_attainment_ratio
    return [
        Cell(before.tenant),
        Cell(_change(*ttft, 1), _role(*ttft, target)),
        Cell(f"{formats.ms(before.ttft_p99_ms)}{ARROW}{formats.ms(after.ttft_p99_ms)}"),
        Cell(_change(*tbt, 1), _role(*tbt, target)),
        Cell(f"{formats.ms(before.tbt_p99_ms)}{ARROW}{formats.ms(after.tbt_p99_ms)}"),
    ]


def _role(before: float | None, after: float | None, target: float | None) -> Role:
    """Only what was promised and is not kept any more is bad, only what is kept again is good."""
    if before is None or after is None or not target or (before >= target) == (after >= target):
        return Role.PLAIN
    return Role.GOOD if after >= target else Role.BAD


def _change(before: float | None, after: float | None, digits: int) -> str:
    return f"{formats.percent(before, digits)}{ARROW}{formats.percent(after, digits)}"
