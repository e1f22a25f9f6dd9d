"""The figures as rows, for the terminal and for the page alike."""

from __future__ import annotations

from pdmuxd.daemon.bench.decide.verdict import Outcome
from pdmuxd.daemon.bench.decide.wanted import Wanted
from pdmuxd.daemon.report.colours import policy_colour
from pdmuxd.daemon.report.table import Cell, Table, TableColumn, TableRow, TableSection

FEW_REQUESTS = 100
"""With fewer in a run, an attainment of 99% allows not one miss."""
HEADINGS = ("engine", "req/s", "good", "good/s", "TTFT met", "TTFT p99", "TBT met", "TBT p99")
"""Eight columns of 80 characters together; percentiles in milliseconds."""


_MEANINGS = (
    "",
    "requests that arrive in a second",
    "share of requests whose first token was in time and whose own p99 gap met the TBT target",
    "good requests a second",
    "share of requests whose first token was in time",
    "milliseconds, 99th percentile of the time to the first token",
    "share of all gaps between tokens within the target",
    "milliseconds, 99th percentile of all gaps",
)


def notes(wanted: Wanted, found: Outcome) -> list[str]:
    """What a reader must know before trusting the numbers."""
    said = []
    if wanted.engine == "emulated":
        said.append(
            f"This is the emulated engine with profile {wanted.model.emulator_profile}: its stock, chunk-N "
            "and pdmux are policies of the emulator that schedule as SGLang does. It says nothing of this "
            "machine's GPU. It runs in wall-clock time, and a busy host makes tokens late."
        )
    elif wanted.profile is None and any(one.is_ours for one in wanted.contenders):
        said.append(
            "pdmuxd predicted with a roofline; with a profile of this GPU and model (pdmuxd profile run "
            "--output FILE, then --profile FILE) it decides better."
        )
    if wanted.engine == "sglang" and wanted.model.flags:
        said.append("The model's folder has no weights: they were made up, which costs the same time.")
    if min((one.seeds for one in found.figures), default=0) == 1:
        said.append("Some figures are of one run: differences under 5% are noise; more --seeds tell more.")
    fewest = min((one.requests for one in found.figures), default=FEW_REQUESTS)
    if fewest < FEW_REQUESTS:
        said.append(
            f"A run had as few as {fewest} requests, so that single ones decide; a longer --duration-s "
            "tells more."
        )
    errors = sum(one.errors for one in found.figures)
    if errors:
        said.append(f"{errors:,} requests ended with an error; they count as not good. The logs say why.")
    return said


def table(wanted: Wanted, found: Outcome) -> Table:
    """Every engine at every rate, under each target."""
    named = zip(HEADINGS, _MEANINGS, strict=True)
    columns = [TableColumn(text=heading, hint=meaning) for heading, meaning in named]
    return Table(columns=columns, sections=[_section(wanted, found, tbt_ms) for tbt_ms in wanted.tbt_ms])


def _section(wanted: Wanted, found: Outcome, tbt_ms: float) -> TableSection:
    order = [one.name for one in wanted.contenders]
    least = wanted.attainment_ratio
    rows = []
    for one in (one for one in found.figures if one.tbt_ms == tbt_ms):
        cells: list[str | Cell] = [
            f"{one.rate:g}",
            Cell(f"{one.good_ratio:.1%}", one.good_ratio >= least),
            f"{one.goodput_rps:.2f}",
            Cell(f"{one.in_time_ratio:.1%}", one.in_time_ratio >= least),
            f"{one.ttft_p99_ms:,.0f}",
            Cell(f"{one.within_ratio:.2%}", one.within_ratio >= least),
            Cell(f"{one.tbt_p99_ms:,.1f}", one.tbt_p99_ms <= tbt_ms),
        ]
        colour = policy_colour(order.index(one.contender))
        rows.append(TableRow(label=one.contender, cells=cells, colour=colour))
    return TableSection(title=f"TBT {tbt_ms:g} ms", rows=rows)
