"""The rows of a comparison as text, for the terminal and for the report alike."""

from __future__ import annotations

import math

from pdmuxd.daemon.compare.ladder import ladder_notes
from pdmuxd.daemon.compare.schema import AtGoodput, CellDocument, CompareDocument
from pdmuxd.daemon.replay.notes import profile_notes
from pdmuxd.daemon.replay.rows import milliseconds
from pdmuxd.daemon.report.colours import policy_colour
from pdmuxd.daemon.report.table import Cell, Table, TableColumn, TableRow, TableSection

HEADINGS = ("policy", "goodput /s", "of best", "TTFT p50", "p99", "TBT p50", "p99", "SMs P/D")
"""Eight columns of 80 characters together."""

SPARED = (7, 2)
"""Columns that a narrow terminal does without, in this order: SM time, the share of the best."""

MEANINGS = (
    "its specification",
    "requests a second, mean over the seeds, with the half-width of its 95% confidence interval",
    "share of the best policy's goodput under the same target",
    "median, milliseconds at that policy's own goodput",
    "99th percentile, milliseconds at that policy's own goodput",
    "median, milliseconds at that policy's own goodput",
    "99th percentile, milliseconds at that policy's own goodput",
    "shares of the GPU's SM time that prefill and decode occupied there",
)

REPORT_HEADINGS = ("TTFT p99.9", "late by p99", "in time by length")
"""What the report has beyond HEADINGS."""

REPORT_MEANINGS = (
    "99.9th percentile of TTFT, milliseconds at that policy's own goodput",
    "99th percentile of what late first tokens came after their targets, milliseconds",
    "first tokens in time, by quarter of the requests: those with the fewest uncached prompt tokens first",
)

FEW_REQUESTS = 100
"""With fewer in a run, 99% attainment allows not one miss."""


def table(document: CompareDocument) -> Table:
    """The policies under each TBT target, in the order of the options."""
    columns = [
        TableColumn(
            text=heading,
            hint=meaning,
            is_for_page=at >= len(HEADINGS),
            spared=SPARED.index(at) + 1 if at in SPARED else 0,
        )
        for at, (heading, meaning) in enumerate(
            zip((*HEADINGS, *REPORT_HEADINGS), (*MEANINGS, *REPORT_MEANINGS), strict=True)
        )
    ]
    policies = dict.fromkeys(cell.policy for cell in document.cells)
    colours = {policy: policy_colour(index) for index, policy in enumerate(policies)}
    sections = [
        TableSection(
            title=f"TBT {tbt_ms:g} ms",
            rows=[
                TableRow(label=cell.policy, cells=_cells(cell), colour=colours[cell.policy])
                for cell in document.cells
                if cell.tbt_ms == tbt_ms
            ],
        )
        for tbt_ms in document.targets.tbt_ms
    ]
    return Table(columns=columns, sections=sections)


def _cells(cell: CellDocument) -> list[str | Cell]:
    """The best policy's share of the best is reached, and that of one that holds no rate is missed."""
    ratio = "-" if cell.ratio_to_best is None else f"{cell.ratio_to_best:.2f}"
    goodput = _goodput(cell)
    is_met = True if ratio == "1.00" else False if goodput == "0" else None
    return [goodput, Cell(ratio, is_met), *_latencies(cell.at_goodput), *_report_cells(cell.at_goodput)]


def _report_cells(at: AtGoodput | None) -> tuple[str, ...]:
    if at is None:
        return ("-",) * len(REPORT_HEADINGS)
    quarters = " ".join(f"{ratio * 100:.1f}" for ratio in at.ttft_by_new_tokens_quarter_ratio)
    late = milliseconds(at.ttft_late_by_p99_ms) if at.ttft_late_by_p99_ms else "-"
    return (milliseconds(at.ttft_p99_9_ms), late, f"{quarters} %")


def notes(document: CompareDocument) -> list[str]:
    """One sentence each: nothing that changes the numbers goes unsaid."""
    workload, said = document.workload, []
    if workload.left_out_longer:
        said.append(
            f"{workload.left_out_longer:,} requests were left out because their prompts have more than "
            f"{workload.max_input_tokens:,} tokens."
        )
    if workload.dropped_too_long:
        said.append(f"{workload.dropped_too_long:,} requests were left out because they are too long.")
    if workload.clipped:
        said.append(f"{workload.clipped:,} requests were shortened because they are too long.")
    fewest = min((cell.at_goodput.requests for cell in document.cells if cell.at_goodput), default=math.inf)
    if fewest < FEW_REQUESTS:
        said.append(
            f"A run at goodput had as few as {fewest:.0f} requests, so that single ones decide; "
            "more --seconds make it steadier."
        )
    if any(cell.at_goodput is None for cell in document.cells):
        said.append("A goodput of 0 means that no rate was held at which a run has a few requests.")
    said.extend(_unsettled(document))
    said.extend(ladder_notes(document))
    said.extend(profile_notes(document.profile))
    return said


def _unsettled(document: CompareDocument) -> list[str]:
    """Figures that would be lower after a longer run."""
    named = [
        f"{cell.policy} at {cell.tbt_ms:g} ms"
        for cell in document.cells
        if any(seed.stands is False for seed in cell.seeds)
    ]
    if not named:
        return []
    longest = document.runs.seconds * 2**document.runs.doublings
    return [
        f"Not settled after runs of {longest:g} s, and likely lower in longer ones: {', '.join(named)}; "
        "more --doublings or --seconds tell."
    ]


def verdict(document: CompareDocument) -> str:
    """The verdict: which policy holds the highest rate, under each target."""
    return " ".join(_verdict(document, tbt_ms) for tbt_ms in document.targets.tbt_ms)


def _verdict(document: CompareDocument, tbt_ms: float) -> str:
    cells = [cell for cell in document.cells if cell.tbt_ms == tbt_ms]
    first, *others = sorted(cells, key=lambda cell: -cell.goodput_requests_per_s)
    target = f"TBT {tbt_ms:g} ms"
    if first.goodput_requests_per_s <= 0.0:
        return f"Under {target} no policy holds any rate that was tried."
    held = f"{rate_text(first.goodput_requests_per_s)} requests a second"
    if not others:
        return f"Under {target} {first.policy} holds {held}."
    second = others[0]
    gap = first.goodput_requests_per_s - second.goodput_requests_per_s
    # Two means whose intervals overlap are not told apart.
    if gap <= (first.goodput_half_width_95 or 0.0) + (second.goodput_half_width_95 or 0.0):
        return f"Under {target} {first.policy} and {second.policy} hold about the same, {held}."
    if second.goodput_requests_per_s <= 0.0:
        return f"Under {target} only {first.policy} holds a rate: {held}."
    times = first.goodput_requests_per_s / second.goodput_requests_per_s
    return (
        f"Under {target} {first.policy} holds {held}, {times:.2f} times what {second.policy} does, the next."
    )


def rate_text(rate_per_s: float) -> str:
    """Three digits, as many as the search can tell apart."""
    if rate_per_s <= 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(rate_per_s)))
    return f"{rate_per_s:,.{decimals}f}"


def _goodput(cell: CellDocument) -> str:
    mean = rate_text(cell.goodput_requests_per_s)
    half = cell.goodput_half_width_95
    if half is None or cell.goodput_requests_per_s <= 0:
        return mean
    decimals = len(mean.partition(".")[2])
    return f"{mean} ±{half:,.{decimals}f}"


def _latencies(at: AtGoodput | None) -> tuple[str, ...]:
    if at is None:
        return ("-", "-", "-", "-", "-")
    return (
        milliseconds(at.ttft_p50_ms),
        milliseconds(at.ttft_p99_ms),
        milliseconds(at.tbt_p50_ms),
        milliseconds(at.tbt_p99_ms),
        f"{at.prefill_sm_ratio * 100:.0f}/{at.decode_sm_ratio * 100:.0f}%",
    )
