"""The page: the verdict, a table, and what it is drawn from, in one HTML file that works offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from plotly.subplots import make_subplots

from pdmuxd.daemon.bench.decide.table import notes, table
from pdmuxd.daemon.bench.decide.verdict import Figures, Outcome, verdict
from pdmuxd.daemon.bench.decide.wanted import Wanted
from pdmuxd.daemon.bench.load.score import BIN_S
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.page import Page, assemble
from pdmuxd.daemon.report.plots import (
    MARGIN_PX,
    Figure,
    Values,
    add_exceeding,
    exceeding_axis,
    log_axis,
    settle,
    single,
)

PANEL_PX = 300


def render(wanted: Wanted, found: Outcome, *, gpu: str, command: str, version: str, created_at: str) -> str:
    """The whole file."""
    return assemble(
        Page(
            title=f"Does pdmuxd pay? {wanted.model.name}, {wanted.load.kind}",
            verdict=verdict(wanted, found),
            lead=f"{', '.join(one.name for one in wanted.contenders)} under the same requests",
            notes=notes(wanted, found),
            facts=_facts(wanted, found, gpu),
            caption="Means over the seeds. Green: the targets are kept.",
            table=table(wanted, found),
            figures=_figures(wanted, found),
            command=command,
            version=version,
            created_at=created_at,
        )
    )


def _facts(wanted: Wanted, found: Outcome, gpu: str) -> list[tuple[str, str]]:
    load, ttft = wanted.load, wanted.load.ttft
    machine = gpu if wanted.engine == "sglang" else f"emulated: {wanted.model.emulator_profile}"
    return [
        ("Machine", machine),
        ("Model", f"{wanted.model.name}" + (f", {wanted.tp_size} GPUs" if wanted.tp_size > 1 else "")),
        ("Load", f"{load.text}; {load.duration_s:g} s of arrivals in each run"),
        ("Runs", f"{found.done} of {found.runs}; seeds {', '.join(map(str, wanted.seeds))}"),
        (
            "Targets",
            f"TTFT {ttft.fixed_s * 1e3:g} ms plus {ttft.per_1k_s * 1e3:g} ms per 1,000 new tokens; TBT "
            f"{', '.join(f'{tbt:g}' for tbt in wanted.tbt_ms)} ms; "
            f"{100 * wanted.attainment_ratio:g}% of requests",
        ),
        ("SGLang's flags", " ".join(wanted.extra) or "none but those that every engine gets"),
    ]


def _figures(wanted: Wanted, found: Outcome) -> list[Figure]:
    figures = [_goodput(wanted, found)]
    for tbt_ms in wanted.tbt_ms:
        rate = _telling_rate(found, tbt_ms)
        if rate is not None:
            figures += [_ttft(wanted, found, rate, tbt_ms), _tbt(wanted, found, rate, tbt_ms)]
    return figures


def _telling_rate(found: Outcome, tbt_ms: float) -> float | None:
    """The rate at which the engines are farthest apart, of those that most of them were measured at."""
    by_rate: dict[float, list[Figures]] = {}
    for one in found.figures:
        if one.tbt_ms == tbt_ms:
            by_rate.setdefault(one.rate, []).append(one)
    if not by_rate:
        return None
    most = max(map(len, by_rate.values()))
    whole = {rate: [one.good_ratio for one in of] for rate, of in by_rate.items() if len(of) == most}
    return max(whole, key=lambda rate: (max(whole[rate]) - min(whole[rate]), rate))


def _goodput(wanted: Wanted, found: Outcome) -> Figure:
    rows = len(wanted.tbt_ms)
    plot = make_subplots(
        rows=rows,
        cols=2,
        column_titles=("good requests", "good requests a second"),
        row_titles=[f"TBT {tbt_ms:g} ms" for tbt_ms in wanted.tbt_ms] if rows > 1 else None,
        horizontal_spacing=0.1,
        vertical_spacing=0.3 / (rows + 1),
    )
    for row, tbt_ms in enumerate(wanted.tbt_ms, start=1):
        for index, one in enumerate(wanted.contenders):
            of = [f for f in found.figures if f.contender == one.name and f.tbt_ms == tbt_ms]
            if not of:
                continue
            top = max(of, key=lambda f: f.goodput_rps)
            for column, values in ((1, [f.good_ratio for f in of]), (2, [f.goodput_rps for f in of])):
                plot.add_scatter(
                    x=[f.rate for f in of],
                    y=values,
                    mode="lines+markers",
                    name=one.name,
                    legendgroup=one.name,
                    showlegend=row == column == 1,
                    line={
                        "color": colours.policy_colour(index),
                        "dash": colours.policy_dash(index),
                        "width": 2,
                    },
                    marker={"size": [13 if column == 2 and f is top else 6 for f in of]},
                    hovertemplate="%{x:g} requests/s: %{y:.1%}" if column == 1 else "%{y:.2f} good/s",
                    row=row,
                    col=column,
                )
        plot.add_hline(
            y=wanted.attainment_ratio, line={"color": colours.TARGET, "dash": "dot"}, row=row, col=1
        )
    settle(plot, height=PANEL_PX * rows + MARGIN_PX)
    plot.update_yaxes(tickformat=".0%", range=[0, 1.03], col=1)
    plot.update_yaxes(rangemode="tozero", col=2)
    plot.update_xaxes(rangemode="tozero")
    plot.update_xaxes(title="requests a second", row=rows)
    return Figure(
        title="Goodput",
        caption="Left, the share of requests that met their targets; the grey line is the share that must. "
        "Right, how many met them a second; the large mark is each engine's best.",
        plot=plot,
    )


def _ttft(wanted: Wanted, found: Outcome, rate: float, tbt_ms: float) -> Figure:
    plot = single(height=430)
    every: list[float] = [1.0]
    for index, one in enumerate(wanted.contenders):
        rows = [row for run in found.records.get((one.name, rate, tbt_ms), ()) for row in run["rows"]]
        # Who got no token waited at least that long.
        ratios = np.sort([(row[7] if row[4] is None else row[4]) / row[5] for row in rows if row[5]])
        if len(ratios):
            every += [float(ratios[0]), float(ratios[-1])]
            share = np.arange(1, len(ratios) + 1) / len(ratios)
            add_exceeding(plot, index, one.name, ratios, share, unit=" of its target")
    plot.update_xaxes(**log_axis(every, "TTFT over its own target"))
    exceeding_axis(plot, wanted.attainment_ratio, target=1.0)
    return Figure(
        title=f"Time to first token at {rate:g} requests/s" + _at(wanted, tbt_ms),
        caption="The share of requests whose first token took longer than so many times its own target. A "
        "line that passes below the crossing of the grey lines keeps the target.",
        plot=plot,
    )


def _tbt(wanted: Wanted, found: Outcome, rate: float, tbt_ms: float) -> Figure:
    plot = single(height=430)
    every: list[float] = [tbt_ms]
    for index, one in enumerate(wanted.contenders):
        values, share = _gaps(found.records.get((one.name, rate, tbt_ms), ()))
        if len(values):
            every += [float(values[0]), float(values[-1])]
            add_exceeding(plot, index, one.name, values, share, unit=" ms")
    plot.update_xaxes(**log_axis(every, "TBT, ms"))
    exceeding_axis(plot, wanted.attainment_ratio, target=tbt_ms)
    return Figure(
        title=f"Time between tokens at {rate:g} requests/s" + _at(wanted, tbt_ms),
        caption="The share of gaps between two tokens of a request that took longer. A line that passes "
        "below the crossing of the grey lines keeps the target.",
        plot=plot,
    )


def _gaps(runs: Sequence[Mapping[str, Any]]) -> tuple[Values, Values]:
    """The ends of the bins, in milliseconds, and the share of gaps in them or below."""
    counts: dict[int, int] = {}
    for run in runs:
        for number, count in run["gaps"]:
            counts[number] = counts.get(number, 0) + count
    numbers = sorted(counts)
    total = max(1, sum(counts.values()))
    share = np.cumsum([counts[number] for number in numbers]) / total
    return np.array([(number + 1) * BIN_S * 1e3 for number in numbers]), np.asarray(share, dtype=np.float64)


def _at(wanted: Wanted, tbt_ms: float) -> str:
    return f", TBT {tbt_ms:g} ms" if len(wanted.tbt_ms) > 1 else ""
