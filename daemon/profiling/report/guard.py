"""The contention guard in figures: its cells, and the slowdowns that it was made of, on either side."""

from __future__ import annotations

import math

from plotly.subplots import make_subplots

from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import MARGIN_PX, Figure, settle, single
from pdmuxd.engine.core.guard import MAX_RATIO
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.profiling.document import MeasuredProfile
from pdmuxd.engine.profiling.hardware import pairs_of

PANEL_PX = 150
EDGES = ("under 2K", "2K", "8K", "32K", "128K", "512K", "2M")


def guard_map(profile: MeasuredProfile) -> Figure | None:
    """The highest bound for each decode batch and prefill, a panel per number of decode SMs."""
    if not profile.guard_cells:
        return None
    sizes = sorted({cell[0] for cell, _ in profile.guard_cells})
    news = sorted({cell[1] for cell, _ in profile.guard_cells})
    batches = sorted({cell[3] for cell, _ in profile.guard_cells})
    highest: dict[tuple[int, int, int], float] = {}
    for (sms, new, _, bs, _), ratio in profile.guard_cells:
        highest[sms, new, bs] = max(highest.get((sms, new, bs), 1.0), ratio)
    plot = make_subplots(
        rows=len(sizes),
        cols=1,
        shared_xaxes=True,
        subplot_titles=[f"{sms} decode SMs" for sms in sizes],
        vertical_spacing=0.3 / (len(sizes) + 1),
    )
    top = max(highest.values())
    for row, sms in enumerate(sizes, start=1):
        plot.add_heatmap(
            x=[_batch(bs) for bs in batches],
            y=[EDGES[min(new, len(EDGES) - 1)] for new in news],
            z=[[highest.get((sms, new, bs)) for bs in batches] for new in news],
            zmin=1.0,
            zmax=top,
            colorscale="Cividis",
            showscale=row == 1,
            hovertemplate="decode batch %{x}, prefill of %{y}: %{z:.3f}<extra></extra>",
            row=row,
            col=1,
        )
    settle(plot, height=PANEL_PX * len(sizes) + MARGIN_PX)
    plot.update_yaxes(title="new tokens")
    plot.update_xaxes(type="category")
    plot.update_xaxes(title="decode batch, from", row=len(sizes))
    return Figure(
        title="The contention guard",
        caption="The highest bound of each cell over reused tokens: decode beside such a prefill is never "
        "expected to be slower than so many times its prediction alone.",
        plot=plot,
    )


def slowdowns(profile: MeasuredProfile, model: SoloRunModel) -> Figure | None:
    """How much slower decode was beside prefill, over all pairs."""
    pairs = [pair for pair in pairs_of(profile.samples, model) if pair.slowdown <= MAX_RATIO]
    if not pairs:
        return None
    plot = single(380)
    sizes = sorted({pair.point.decode_sms for pair in pairs})
    for index, sms in enumerate(sizes):
        plot.add_histogram(
            x=[pair.slowdown for pair in pairs if pair.point.decode_sms == sms],
            name=f"{sms} decode SMs",
            marker={"color": colours.partition_colour(index, len(sizes))},
            xbins={"size": 0.01},
        )
    plot.update_layout(barmode="stack")
    plot.update_xaxes(title="decode beside prefill / predicted alone")
    plot.update_yaxes(title="pairs")
    return Figure(
        title="Slowdown of decode beside prefill",
        caption=f"The 95th percentile of the steps of each of {len(pairs)} pairs.",
        plot=plot,
    )


def prefill_slowdowns(profile: MeasuredProfile, model: SoloRunModel) -> Figure | None:
    """How much longer prefill took beside decode, by its SMs, and what a split is weighed with."""
    pairs = [pair for pair in pairs_of(profile.samples, model) if math.isfinite(pair.prefill)]
    if not pairs:
        return None
    plot = single(380)
    plot.add_scatter(
        x=[pair.point.prefill_sms for pair in pairs],
        y=[pair.prefill for pair in pairs],
        mode="markers",
        name="a pair",
        marker={"color": colours.PREFILL, "size": 5, "opacity": 0.5},
        hovertemplate="%{x} prefill SMs: %{y:.2f}<extra></extra>",
    )
    known = {
        fit.sms: fit.prefill.colocated_ratio
        for fit in profile.solo_run
        if fit.prefill is not None and fit.prefill.colocated_ratio
    }
    plot.add_scatter(
        x=list(known),
        y=list(known.values()),
        mode="lines+markers",
        name="typically",
        line={"color": colours.policy_colour(3), "width": 2},
    )
    plot.update_xaxes(title="prefill SMs", rangemode="tozero")
    plot.update_yaxes(title="prefill beside decode / predicted alone")
    return Figure(
        title="Slowdown of prefill beside decode",
        caption="The line is what the policy auto weighs a split with; where nothing was measured it goes by "
        "decode's share of the SMs.",
        plot=plot,
    )


def _batch(index: int) -> str:
    return str(1 << (index - 1)) if index else "0"
