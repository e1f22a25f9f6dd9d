"""The figures as rows, for the terminal and for the page alike."""

from __future__ import annotations

from rich.table import Table

from pdmuxd.daemon.bench.decide.verdict import Figures, Outcome
from pdmuxd.daemon.bench.decide.wanted import Wanted

FEW_REQUESTS = 100
"""With fewer in a run, an attainment of 99% allows not one miss."""
HEADINGS = ("engine", "req/s", "good", "good/s", "TTFT met", "TTFT p99", "TBT met", "TBT p99")
"""Eight columns of 80 characters together; percentiles in milliseconds."""


def cells(one: Figures) -> tuple[str, ...]:
    """Of a row."""
    return (
        one.contender,
        f"{one.rate:g}",
        f"{one.good_ratio:.1%}",
        f"{one.goodput_rps:.2f}",
        f"{one.in_time_ratio:.1%}",
        f"{one.ttft_p99_ms:,.0f}",
        f"{one.within_ratio:.2%}",
        f"{one.tbt_p99_ms:,.1f}",
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


def terminal_table(wanted: Wanted, found: Outcome) -> Table:
    """Every engine at every rate."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(HEADINGS[0], no_wrap=True)
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for tbt_ms in wanted.tbt_ms:
        if len(wanted.tbt_ms) > 1:
            table.add_row(f"TBT {tbt_ms:g} ms", style="bold")
        for one in (one for one in found.figures if one.tbt_ms == tbt_ms):
            good = "green" if one.good_ratio >= wanted.attainment_ratio else "red"
            row = list(cells(one))
            row[2] = f"[{good}]{row[2]}[/]"
            table.add_row(*row)
    return table
