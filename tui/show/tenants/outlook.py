"""What new targets would give to all tenants, before they are promised."""

from __future__ import annotations

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import BandOut, LoadOutlookOut, OutlookOut, TenantFiguresOut, TenantOutlookOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row, wrap
from pdmuxd.tui.show.roles import Role

MARKS = {
    "feasible": ("+ ", Role.GOOD),
    "at_risk": ("! ", Role.WARN),
    "infeasible": ("!! ", Role.BAD),
}
EXPECTED = {"kept": ("+ ", Role.GOOD), "at_risk": ("? ", Role.WARN), "missed": ("! ", Role.BAD)}
COLUMNS = (
    Column("tenant", 0),
    Column("promised", 8, "right"),
    Column("TTFT got → then", 19, "right"),
    Column("TTFT p99", 11, "right"),
    Column("TBT got → then", 19, "right"),
)
TENANTS_SHOWN = 4
LOADS = ("usual", "busy")
"""The median of the last minutes, and the 90th percentile."""


def outlook_text(answer: OutlookOut | Refusal | None, width: int) -> list[Line]:
    """The verdict, what stands against it, the usual and the busy load, each tenant before and after."""
    if answer is None:
        return [line(("asking the policy in force ...", Role.DIM))]
    if isinstance(answer, Refusal):
        said = "this daemon predicts nothing" if answer.is_missing_route else answer.detail
        return wrap(f"no prediction: {said}", width, Role.WARN)
    mark, role = MARKS.get(answer.verdict, ("? ", Role.WARN))
    lines = wrap(mark + printable(answer.text), width, role)
    for obstacle in answer.obstacles:
        lowest = obstacle.lowest_feasible_ms
        allowed = "" if lowest is None else f"; lowest feasible {formats.ms(lowest)} ms"
        lines += wrap(f"{obstacle.field}: {printable(obstacle.text)}{allowed}", width, role)
    before = answer.before.loads
    for number, (name, after) in enumerate(zip(LOADS, answer.after.loads, strict=False)):
        lines += wrap(_at_load(name, before[number] if number < len(before) else None, after), width)
    if answer.after.binding:
        named = ", ".join(
            f"{one.tenant} {formats.percent(one.time_ratio)}" for one in answer.after.binding[:3]
        )
        lines += wrap(f"strictest TBT of those that decode: {named} of the time", width, Role.DIM)
    known = [one for one in answer.tenants if one.after is not None]
    if known:
        lines.append(row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, width))
        lines += [row(_cells(one), COLUMNS, width) for one in known[:TENANTS_SHOWN]]
    window = formats.duration(answer.window_ms / 1000)
    policy = answer.policy or formats.NONE
    note = (
        f"from {answer.requests} requests of the last {window}, asked of policy {policy}; "
        f"≥ is the band's low end, by {answer.checked} past predictions"
    )
    return [*lines, *wrap(note, width, Role.DIM)]


def _at_load(name: str, before: LoadOutlookOut | None, after: LoadOutlookOut) -> str:
    text = f"{name} load ({after.load.decode_bs} decode): {printable(after.text)}"
    speed = after.prefill_tokens_per_s
    if speed is None:
        return text
    text += f", prefill {formats.count(speed)} tokens/s"
    if before is not None and before.prefill_tokens_per_s and before.tbt_ms != after.tbt_ms:
        text += (
            f" ({speed / before.prefill_tokens_per_s - 1.0:+.0%} against {formats.plain(before.tbt_ms)} ms)"
        )
    return text


def _cells(one: TenantOutlookOut) -> list[Cell]:
    before, after = one.before or TenantFiguresOut(), one.after or TenantFiguresOut()
    measured = one.measured or TenantFiguresOut()
    expected = one.expected or {True: "kept", False: "missed", None: ""}[one.kept]
    mark, role = EXPECTED.get(expected, ("", Role.PLAIN))
    return [
        Cell(mark + one.tenant, role),
        Cell(formats.percent(one.attainment_ratio, 1), Role.DIM),
        Cell(_change(measured.ttft_attainment_ratio, after.ttft_attainment_ratio, one.ttft_band)),
        Cell(f"{formats.ms(before.ttft_p99_ms)} → {formats.ms(after.ttft_p99_ms)}"),
        Cell(_change(measured.tbt_attainment_ratio, after.tbt_attainment_ratio, one.tbt_band)),
    ]


def _change(measured: float | None, after: float | None, band: BandOut | None) -> str:
    """What clients got, what is predicted, and down to where that may be off."""
    low = "" if band is None else f" ≥{formats.percent(band.low_ratio)}"
    return f"{formats.percent(measured, 1)} → {formats.percent(after, 1)}{low}"
