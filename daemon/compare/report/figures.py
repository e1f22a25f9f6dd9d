"""Figures of a comparison: its goodput curves; the rest are the replay report's, at a common rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from plotly.subplots import make_subplots

from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.compare.stages import CommonRate
from pdmuxd.daemon.replay.report import latency, over_time
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import MARGIN_PX, Figure, settle
from pdmuxd.engine.core.slo import Slo

PANEL_PX = 330


def all_figures(document: CompareDocument, common: Sequence[CommonRate], slos: Sequence[Slo]) -> list[Figure]:
    """The curves of all targets, then for each target what happens at the common rate."""
    figures = [goodput_curves(document)]
    for at, slo in zip(common, slos, strict=True):
        where = f"TBT {slo.tbt_s * 1000.0:g} ms, {at.rate_rps:.3g} requests a second"
        shown = (
            latency.ttft_exceeding(at.replays, slo),
            latency.tbt_exceeding(at.replays, slo),
            over_time.good_and_load(at.replays, slo),
            over_time.sm_split(at.replays),
            over_time.reasons(at.replays),
        )
        figures += [replace(figure, title=f"{figure.title} ({where})") for figure in shown]
    return figures


def goodput_curves(document: CompareDocument) -> Figure:
    """Share of good requests against the rate, one panel per TBT target; means over the seeds."""
    tbts_ms = document.targets.tbt_ms
    plot = make_subplots(
        rows=len(tbts_ms),
        cols=1,
        subplot_titles=[f"TBT {tbt_ms:g} ms" for tbt_ms in tbts_ms],
        vertical_spacing=0.36 / (len(tbts_ms) + 1),
    )
    policies = list(dict.fromkeys(cell.policy for cell in document.cells))
    for row, tbt_ms in enumerate(tbts_ms, start=1):
        for index, policy in enumerate(policies):
            rates, shares = _curve(document, policy, tbt_ms)
            plot.add_scatter(
                x=rates,
                y=shares,
                mode="lines+markers",
                name=policy,
                legendgroup=policy,
                showlegend=row == 1,
                marker={"color": colours.policy_colour(index), "size": 5},
                line={
                    "color": colours.policy_colour(index),
                    "dash": colours.policy_dash(index),
                    "width": 2,
                },
                hovertemplate="%{y:.1%} good at %{x:.3g}/s",
                row=row,
                col=1,
            )
        for cell in (cell for cell in document.cells if cell.tbt_ms == tbt_ms):
            if cell.goodput_requests_per_s > 0.0:
                plot.add_scatter(
                    x=[cell.goodput_requests_per_s],
                    y=[document.targets.attainment_ratio],
                    mode="markers",
                    name=cell.policy,
                    legendgroup=cell.policy,
                    showlegend=False,
                    marker={
                        "color": colours.policy_colour(policies.index(cell.policy)),
                        "size": 13,
                        "symbol": "diamond",
                        "line": {"width": 1.5, "color": colours.TARGET},
                    },
                    hovertemplate="goodput %{x:.3g}/s",
                    row=row,
                    col=1,
                )
        plot.add_hline(
            y=document.targets.attainment_ratio,
            line={"color": colours.TARGET, "dash": "dash", "width": 1.5},
            row=row,
            col=1,
        )
    settle(plot, height=PANEL_PX * len(tbts_ms) + MARGIN_PX)
    plot.update_yaxes(title="good requests", tickformat=".0%", range=[0, 1.03])
    plot.update_xaxes(rangemode="tozero")
    plot.update_xaxes(title="requests a second", row=len(tbts_ms))
    return Figure(
        title="Goodput curves",
        caption="Share of requests that met both targets against the rate of arrivals. A policy's goodput is "
        "the highest rate at which its line is still above the grey one: the diamond, a mean over the seeds.",
        plot=plot,
    )


def _curve(document: CompareDocument, policy: str, tbt_ms: float) -> tuple[list[float], list[float]]:
    by_rate: dict[float, list[float]] = {}
    for point in document.curve:
        if point.policy == policy and point.tbt_ms == tbt_ms:
            by_rate.setdefault(point.rate_per_s, []).append(point.good_ratio)
    rates = sorted(by_rate)
    return rates, [float(np.mean(by_rate[rate])) for rate in rates]
