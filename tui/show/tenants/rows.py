"""Tenants as rows: what the control plane says of each, joined with what it does now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdmuxd.tui.client.wire import SloOut, TenantAttainmentOut, TenantLoad, TenantOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Cell, Column
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.table import Order
from pdmuxd.tui.show.words import met_ratio, worst_first
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.console import ConsoleState

COLUMNS = (
    Column("tenant", 0, key="name", letter="N"),
    # A heading has room for the mark of what is sorted by.
    Column("met", 6, "right", key="attained", letter="M"),
    Column("budget", 9, "right", key="budget", letter="B"),
    Column("burn", 5, "right", key="burn", letter="U"),
    Column("TTFT p99", 9, "right", key="ttft", letter="F"),
    Column("TBT/target", 11, "right", key="tbt", letter="T"),
    Column("asked", 6, "right"),
    Column("late", 5, "right", key="late", letter="L"),
    Column("oldest", 7, "right", key="oldest", letter="O"),
    Column("tokens/s", 8, "right"),
    Column("in fl.", 7, "right", key="in_flight", letter="I"),
    Column("wait", 5, "right", key="waiting", letter="W"),
    Column("unserved", 9, "right", key="refused", letter="X"),
)
BY_ROOM = ("asked", "late", "oldest", "tokens/s")
"""Columns for which there must be room, in this order."""
MOST_BURN = 1.0
LOW_BUDGET = 0.25
IDLE = TenantLoad(tenant="")
AS_THEY_COME = Order()


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """One tenant; None for what is not known of it."""

    name: str
    load: TenantLoad = IDLE
    slo: SloOut | None = None
    tenant: TenantOut | None = None
    """As the control plane knows it."""
    enabled: bool = True
    attainment: TenantAttainmentOut | None = None

    @property
    def waiting(self) -> int | None:
        """Requests without a first token; None where the daemon told nothing of it, as of one of many."""
        return None if self.load is IDLE else self.load.waiting

    @property
    def attained_ratio(self) -> float | None:
        """The share met over the last hour, of the target that is worst."""
        load = self.load
        first = (load.ttft_attainment_ratio, load.tbt_attainment_ratio)
        return _worst(min, *first, load.availability_ratio, load.e2e_attainment_ratio)

    @property
    def burn(self) -> float | None:
        """The burn over five minutes, of the target that is worst; 1 just uses up the budget."""
        load = self.load
        return _worst(max, load.ttft_burn, load.tbt_burn, load.availability_burn, load.e2e_burn)

    @property
    def refused(self) -> int | None:
        """Requests of the last five minutes that were not served: refused, expired, lost or failed."""
        return self.load.unserved if self.load is not IDLE else None


SORTS: dict[str, Callable[[TenantRow], float | int | str | None]] = {
    "name": lambda one: one.name,
    # The worst first: what is sorted by is how bad it is.
    "attained": lambda one: None if one.attained_ratio is None else -one.attained_ratio,
    "budget": lambda one: None if one.load.budget_left_ratio is None else -one.load.budget_left_ratio,
    "burn": lambda one: one.burn,
    "ttft": lambda one: one.load.ttft_ms.p99,
    "tbt": lambda one: one.load.tbt_gap_ms.p99,
    "in_flight": lambda one: one.load.in_flight,
    "waiting": lambda one: one.waiting,
    "refused": lambda one: one.refused,
    "met": lambda one: None if met_ratio(one.load) is None else -(met_ratio(one.load) or 0.0),
    "late": lambda one: one.load.late_now,
    "oldest": lambda one: one.load.oldest_wait_ms,
}


def tenant_rows(state: ConsoleState, *, wanted: str = "", order: Order = AS_THEY_COME) -> list[TenantRow]:
    """Every tenant whose name holds `wanted`; the worst first unless an order is given."""
    loads = {one.tenant: one for one in worst_first(state.tenants.tenants)} if state.tenants else {}
    listed: Sequence[TenantOut] = known(state.answers.tenants) or ()
    attainment = known(state.answers.attainment)
    budgets = {one.tenant: one for one in attainment.tenants} if attainment else {}
    tenants = {one.name: one for one in listed}
    names = [*loads, *sorted(tenants.keys() - loads.keys())]
    rows = [
        TenantRow(
            name=name,
            load=loads.get(name, IDLE),
            slo=tenants[name].slo if name in tenants else None,
            tenant=tenants.get(name),
            enabled=tenants[name].enabled if name in tenants else True,
            attainment=budgets.get(name),
        )
        for name in names
        if wanted.lower() in name
    ]
    return in_order(rows, order)


def in_order(rows: list[TenantRow], order: Order) -> list[TenantRow]:
    """The rows in order. Unknown values come last in both directions."""
    if not order.key:
        return rows
    of = SORTS[order.key]
    some = [one for one in rows if of(one) is not None]
    none = [one for one in rows if of(one) is None]
    # Names read from a to z first, figures from the worst.
    descending = order.descending != (order.key == "name")
    return sorted(some, key=of, reverse=descending) + none  # type: ignore[arg-type]


def cells(one: TenantRow) -> list[Cell]:
    """A row of COLUMNS."""
    left, burn = one.load.budget_left_ratio, one.burn
    name = one.name if one.enabled else f"{one.name} off"
    return [
        Cell(name, Role.PLAIN if one.enabled else Role.DIM),
        Cell(formats.percent(one.attained_ratio, 1)),
        Cell(budget_text(left), budget_role(left)),
        Cell(formats.rate(burn), Role.BAD if burn is not None and burn > MOST_BURN else Role.PLAIN),
        Cell(formats.ms(one.load.ttft_ms.p99)),
        tbt_cell(one),
        Cell(formats.percent(one.load.target_ratio or None, 1), Role.DIM),
        *late_cells(one.load),
        Cell(formats.rate(one.load.output_tokens_per_s)),
        Cell(formats.count(one.load.in_flight)),
        Cell(formats.count(one.waiting)),
        Cell(formats.count(one.refused), Role.WARN if one.load.unserved else Role.PLAIN),
    ]


def late_cells(load: TenantLoad) -> tuple[Cell, Cell]:
    """How many wait past their target, and how long the oldest waits."""
    return (
        Cell(formats.count(load.late_now) if load.late_now else "-", Role.BAD if load.late_now else Role.DIM),
        Cell(
            formats.duration(load.oldest_wait_ms / 1000) if load.oldest_wait_ms else "-",
            Role.BAD if load.late_now else Role.PLAIN,
        ),
    )


def tbt_cell(one: TenantRow) -> Cell:
    """The 99th percentile of the gaps against this tenant's own target."""
    target = one.slo.tbt_ms if one.slo else None
    tbt = one.load.tbt_gap_ms.p99
    is_over = tbt is not None and target is not None and tbt > target
    # A percentile above the target is no miss of it while as many gaps as promised are in time.
    role = Role.PLAIN if not is_over else Role.BAD if (one.load.tbt_burn or 0.0) > MOST_BURN else Role.WARN
    return Cell(f"{formats.ms(tbt)}{'!' if is_over else ''}/{formats.ms(target)}", role)


def budget_text(left: float | None) -> str:
    """What is left of an hour's error budget; where nothing is, how often it was used up."""
    if left is None:
        return formats.NONE
    if left > -0.05:
        return formats.percent(left) if left > 0 else "spent"
    used = 1.0 - left
    return f"{used:.1f}× used" if used < 9.95 else f"{used:.0f}× used"


def budget_role(left: float | None) -> Role:
    """The role of a text about what is left of the hour's error budget."""
    if left is None:
        return Role.PLAIN
    return Role.BAD if left <= 0 else Role.WARN if left < LOW_BUDGET else Role.GOOD


def _worst(of: Callable[..., float], *values: float | None) -> float | None:
    there = [value for value in values if value is not None]
    return of(there) if there else None
