"""One tenant: its targets, how they were met, who changed them."""

from __future__ import annotations

from pdmuxd.tui.client.wire import SloOut, TenantLoad, TenantOut, WindowOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.rows import MOST_BURN, budget_role, budget_text, tenant_rows
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View, why_no_change

WINDOWS = (
    Column("last", 7),
    Column("TTFT met", 9, "right"),
    Column("requests late", 13, "right"),
    Column("burn", 6, "right"),
    Column("TBT met", 9, "right"),
    Column("gaps late", 9, "right"),
    Column("burn", 6, "right"),
    Column("", 0),
)
HISTORY = (
    Column("version", 7, "right"),
    Column("set at", 8),
    Column("TTFT ms", 8, "right"),
    Column("+ per 1K", 8, "right"),
    Column("TBT ms", 7, "right"),
    Column("whole ms", 8, "right"),
    Column("share", 7, "right"),
    Column("", 0),
)


def facts(name: str, view: View, width: int, height: int) -> list[Line]:
    """Targets, then attainment by window."""
    found = next((one for one in tenant_rows(view.state) if one.name == name), None)
    head = heading(view, f"Tenant {name}", width, _hint(view))
    if found is None:
        return [head, line((why_unknown(view.state.answers.tenants) or "there is no such tenant", Role.DIM))]
    lines = [
        head,
        _targets(found.slo, view),
        *cost_of(found.tenant, found.load, view),
        _share(found.tenant),
        _load(found.load),
        _latency(found.load),
    ]
    attainment = found.attainment
    if attainment is None:
        return [*lines, line((why_unknown(view.state.answers.attainment) or "no requests yet", Role.DIM))]
    lines.append(row([Cell(column.heading, Role.DIM) for column in WINDOWS], WINDOWS, width))
    for ttft, tbt in zip(attainment.ttft, attainment.tbt, strict=False):
        cells = [Cell(formats.duration(ttft.window_ms / 1000)), *_window(ttft), *_window(tbt), Cell("")]
        lines.append(row(cells, WINDOWS, width))
    return lines


def has_cost(name: str, view: View) -> bool:
    """Whether `facts` has a line of what its TBT target may cost."""
    found = next((one for one in tenant_rows(view.state) if one.name == name), None)
    return found is not None and bool(cost_of(found.tenant, found.load, view))


def history(name: str, view: View, width: int, height: int) -> list[Line]:
    """The last edits of the targets, newest first."""
    head = heading(view, "Edits of the targets", width)
    answer = view.state.answers.slo_history.get(name)
    why = why_unknown(answer)
    if why is not None:
        return [head, line((why, Role.DIM))]
    rows = [row([Cell(column.heading, Role.DIM) for column in HISTORY], HISTORY, width)]
    for one in known(answer) or ():
        cells = [
            Cell(str(one.version)),
            Cell(formats.moment(one.created_at, view.daemon_now, view.zone)),
            Cell(formats.plain(one.ttft_fixed_ms)),
            Cell(formats.plain(one.ttft_per_1k_new_tokens_ms)),
            Cell(formats.plain(one.tbt_ms)),
            Cell(formats.NONE if one.e2e_ms is None else formats.plain(one.e2e_ms)),
            Cell(formats.percent(one.attainment_ratio, 2)),
            Cell("in force" if one.in_force else "", Role.GOOD),
        ]
        rows.append(row(cells, HISTORY, width))
    return [head, *rows][:height]


def _hint(view: View) -> str:
    why = why_no_change(view.state)
    return "no edit: read-only" if why and view.state.role == "reader" else "e edits the targets"


def _load(load: TenantLoad) -> Line:
    left = load.budget_left_ratio
    return line(
        ("now     ", Role.DIM),
        f"{load.in_flight} in flight, {formats.rate(load.requests_per_s)} requests/s, "
        f"{formats.rate(load.goodput_per_s)} good{_other_goods(load)}, hour's error budget: ",
        (budget_text(left) + (" left" if left is not None and left > 0 else ""), budget_role(left)),
    )


def _other_goods(load: TenantLoad) -> str:
    """Goodput by the engine's steps, and with a late gap forgiven, where a daemon tells them."""
    if load.good_by_steps_per_s is None or load.good_forgiven_per_s is None:
        return ""
    by_steps, forgiven = formats.rate(load.good_by_steps_per_s), formats.rate(load.good_forgiven_per_s)
    return f" ({by_steps} by steps, {forgiven} but for one late gap)"


def _latency(load: TenantLoad) -> Line:
    ttft, tbt, worst = load.ttft_ms, load.tbt_gap_ms, load.tbt_worst_ms
    return line(
        ("minute  ", Role.DIM),
        f"TTFT p50 {formats.ms(ttft.p50)} p99 {formats.ms(ttft.p99)}, "
        f"TBT p50 {formats.ms(tbt.p50)} p99 {formats.ms(tbt.p99)}, "
        f"longest of a request p99 {formats.ms(worst.p99)} ms",
    )


def _targets(slo: SloOut | None, view: View) -> Line:
    if slo is None:
        return line(
            ("targets: ", Role.DIM), (why_unknown(view.state.answers.tenants) or formats.NONE, Role.DIM)
        )
    whole = "" if slo.e2e_ms is None else f"whole {formats.plain(slo.e2e_ms)} ms, "
    return line(
        ("targets ", Role.DIM),
        f"TTFT {formats.plain(slo.ttft_fixed_ms)} ms + {formats.plain(slo.ttft_per_1k_new_tokens_ms)} per 1K "
        f"new, TBT {formats.plain(slo.tbt_ms)} ms, {whole}{formats.percent(slo.attainment_ratio, 2)}",
        (f"  version {slo.version} ", Role.DIM),
        ("in force", Role.GOOD) if slo.in_force else ("on its way", Role.WARN),
    )


def cost_of(tenant: TenantOut | None, load: TenantLoad, view: View) -> list[Line]:
    """What its TBT target may cost the others, and whether it costs too much; nothing if it may cost any."""
    most = None if tenant is None else tenant.max_tbt_cost_ratio
    if most is None and load.tbt_capped_since is None:
        return []
    allowed = "TBT may cost any share" if most is None else f"TBT may cost {formats.percent(most, 1)}"
    if load.tbt_capped_since is None:
        return [line(("cost    ", Role.DIM), f"{allowed} of the prefill time, is not capped")]
    since = formats.moment(load.tbt_capped_since, view.daemon_now, view.zone)
    planned = formats.plain(load.planned_tbt_ms or 0.0)
    capped = f"capped since {since}, steps planned for {planned} ms"
    return [line(("cost    ", Role.DIM), f"{allowed}; ", (capped, Role.WARN))]


def _share(tenant: TenantOut | None) -> Line:
    """What the tenant may use beside the others; the command `A` changes it."""
    if tenant is None or tenant.priority_class is None:
        return line(("share   ", Role.DIM), formats.NONE)
    waits = "" if tenant.max_wait_ms is None else f", waits {formats.duration(tenant.max_wait_ms / 1000)}"
    late = f", late: {tenant.late_action}" if tenant.late_action else ""
    limits = "".join(
        f", {name} {formats.count(limit.value)}{f' ({limit.action})' if limit.action else ''}"
        for name, limit in tenant.limits.items()
    )
    return line(
        ("share   ", Role.DIM),
        f"{tenant.priority_class}, weight {formats.plain(tenant.weight or 0.0)}, "
        f"{formats.count(tenant.max_in_flight)} in flight{waits}{late}{limits}",
    )


def _window(one: WindowOut) -> list[Cell]:
    burn = one.burn
    return [
        Cell(formats.percent(one.attainment_ratio, 1)),
        Cell(formats.count(one.missed), Role.WARN if one.missed else Role.PLAIN),
        Cell(formats.rate(burn), Role.BAD if burn is not None and burn > MOST_BURN else Role.PLAIN),
    ]
