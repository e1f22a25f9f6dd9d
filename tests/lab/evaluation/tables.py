"""Markdown tables of the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from evaluation import notes
from evaluation.goodput import CHUNKS, FIXED, LONG_CONTEXT, OURS, OVERLOADS, POLICIES, Column
from evaluation.papers import Finding
from evaluation.reality import Measured, Numbers

from pdmuxd.daemon.compare.rows import rate_text

TARGET_RATIO = 0.98
OVERLOAD_TARGET = 0.9
LONG_TARGET = 1.3
NONE_HELD = "none held"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def goodput_table(columns: Sequence[Column]) -> str:
    """Policies as rows, workloads and targets as columns."""
    head = ["goodput, requests/s", *(f"{c.setting.workload.title}, {c.setting.tbt_ms:g} ms" for c in columns)]
    rows = [[f"`{policy}`", *(_rate(c, policy) for c in columns)] for policy in POLICIES]
    rows.append(["oracle: best fixed", *(f"{_rate(c, c.best(FIXED))} `{c.best(FIXED)}`" for c in columns)])
    rows.append(["best other", *(f"`{c.rival}`" for c in columns)])
    rows.append([f"**{OURS} / best other**", *(f"**{_text(_ratio(c, c.rival))}**" for c in columns)])
    return table(head, rows)


def fixed_table(columns: Sequence[Column]) -> str:
    """The oracle's candidates."""
    head = ["goodput, requests/s", *(f"{c.setting.workload.title}, {c.setting.tbt_ms:g} ms" for c in columns)]
    return table(head, [[f"`{policy}`", *(_rate(c, policy) for c in columns)] for policy in FIXED])


def means_table(columns: Sequence[Column]) -> str:
    """Geometric means of `auto` over each rival; cells where one of the two holds nothing are counted."""
    rows = []
    rivals: list[tuple[str, list[tuple[Column, str]]]] = [
        (f"`{policy}`", [(c, policy) for c in columns]) for policy in POLICIES if policy != OURS
    ]
    rivals += [(f"`{policy}` everywhere", [(c, policy) for c in columns]) for policy in FIXED]
    rivals.append(("oracle: best fixed of each cell", [(c, c.best(FIXED)) for c in columns]))
    rivals.append(("best other of each cell", [(c, c.rival) for c in columns]))
    long_ones = [c for c in columns if c.setting.workload.name in LONG_CONTEXT]
    rivals.append(
        ("best fixed chunk of each cell, long contexts only", [(c, c.best(CHUNKS)) for c in long_ones])
    )
    for name, cells in rivals:
        ratios = [_ratio(c, policy) for c, policy in cells]
        usable = [ratio for ratio in ratios if ratio is not None and ratio > 0]
        mean = f"{math.exp(math.fsum(map(math.log, usable)) / len(usable)):.2f}" if usable else "-"
        worst = f"{min(usable):.2f}" if usable else "-"
        rows.append([name, mean, worst, f"{len(usable)} of {len(ratios)}"])
    return table([f"{OURS} over", "geometric mean", "worst cell", "cells where both hold a rate"], rows)


def verdicts(columns: Sequence[Column]) -> str:
    """Whether each aim is reached, and the cells where it is not."""
    lines = []
    short = [c for c in columns if (ratio := _ratio(c, c.rival)) is not None and ratio < TARGET_RATIO]
    lines.append(
        f"- `{OURS}` is at least {TARGET_RATIO:g} of the best other policy in {len(columns) - len(short)} of "
        f"{len(columns)} cells."
    )
    for c in short:
        why = notes.CELLS.get(c.setting.key, "")
        lines.append(f"  - {c.setting.key}: {_text(_ratio(c, c.rival))} of `{c.rival}`. {why}".rstrip())
    for c in columns:
        for over, shares in c.beyond.items():
            if shares[OURS] < OVERLOAD_TARGET:
                lines.append(
                    f"- At {over:g} times capacity, {c.setting.key}: {shares[OURS]:.2f} of it is good; "
                    f"the aim is {OVERLOAD_TARGET:g}."
                )
    return "\n".join(lines)


def beyond_table(columns: Sequence[Column]) -> str:
    """Good requests beyond capacity."""
    head = ["setting", "best rival", "its goodput /s"]
    head += [f"{who} at {over:g}x" for over in OVERLOADS for who in (OURS, "rival")]
    rows = []
    for c in columns:
        shares = [
            f"{c.beyond[over][who]:.2f}" if over in c.beyond else "-"
            for over in OVERLOADS
            for who in (OURS, c.rival)
        ]
        rows.append([c.setting.key, f"`{c.rival}`", rate_text(c.mean[c.rival]), *shares])
    return table(head, rows)


def papers_table(findings: Sequence[Finding]) -> str:
    """Paper, ours, and a sentence."""
    lines = ["| direction | paper | ours | note |", "|---|---|---|---|"]
    lines += [f"| {f.what} | {f.paper} | {f.ours} | {notes.PAPERS.get(f.key, '')} |" for f in findings]
    return "\n".join(lines)


FIELDS = (
    ("good", "good_ratio", 100.0, "{:.0f}%"),
    ("TTFT p50, ms", "ttft_p50_ms", 1.0, "{:,.0f}"),
    ("TBT p50, ms", "tbt_p50_ms", 1.0, "{:.1f}"),
    ("TBT p99, ms", "tbt_p99_ms", 1.0, "{:.1f}"),
    ("input tokens/s", "input_tokens_per_s", 1.0, "{:,.0f}"),
)


def reality_table(results: Sequence[tuple[Measured, Numbers]]) -> str:
    """Measured, emulated (ratio) in every cell."""
    head = ["setting", "policy", *(name for name, *_ in FIELDS)]
    rows = []
    for measured, emulated in results:
        cells = []
        for _name, field, scale, form in FIELDS:
            real, ours = getattr(measured.numbers, field), getattr(emulated, field)
            text = form.format(ours * scale)
            if real is None:
                cells.append(f"- / {text}")
            else:
                ratio = f" ({ours / real:.2f})" if real > 0 else ""
                cells.append(f"{form.format(real * scale)} / {text}{ratio}")
        rows.append([measured.title, f"`{measured.policy}`", *cells])
    return table(head, rows)


def reality_summary(results: Sequence[tuple[Measured, Numbers]]) -> str:
    """Geometric mean of the ratios and how many are within 15%."""
    lines = []
    for name, field, _scale, _form in FIELDS[1:]:
        pairs = [(getattr(m.numbers, field), getattr(e, field)) for m, e in results]
        ratios = [ours / real for real, ours in pairs if real]
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        within = sum(1 / 1.15 <= ratio <= 1.15 for ratio in ratios)
        lines.append(
            f"- {name}: emulated over measured {mean:.2f} in geometric mean; {within} of {len(ratios)} "
            "within 15%."
        )
    points = [abs(e.good_ratio - m.numbers.good_ratio) * 100.0 for m, e in results]
    lines.append(
        f"- good: {sum(points) / len(points):.0f} percentage points apart on average, "
        f"{max(points):.0f} at most."
    )
    return "\n".join(lines)


def _rate(column: Column, policy: str) -> str:
    mean, half = column.mean[policy], column.half[policy]
    if mean <= 0:
        return NONE_HELD
    return rate_text(mean) if half is None else f"{rate_text(mean)} ±{rate_text(half)}"


def _ratio(column: Column, policy: str) -> float | None:
    return column.mean[OURS] / column.mean[policy] if column.mean[policy] > 0 else None


def _text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
