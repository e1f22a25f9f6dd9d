"""Figures of what the engine did over virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from pdmuxd.daemon.replay.run import PolicyReplay
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import Figure, Values, minutes, stacked_panels
from pdmuxd.engine.core.slo import Slo


def sm_split(replays: Sequence[PolicyReplay]) -> Figure:
    """Stacked shares of SM time, one panel per policy."""
    plot = stacked_panels([replay.policy for replay in replays])
    for row, replay in enumerate(replays, start=1):
        line = replay.timeline
        for name, values, colour in (
            ("decode", line.decode_sm_ratio, colours.DECODE),
            ("prefill", line.prefill_sm_ratio, colours.PREFILL),
            ("idle", line.idle_sm_ratio, colours.IDLE),
        ):
            _area(plot, row, line.end_s, values, name, colour, legend=row == 1)
    plot.update_yaxes(tickformat=".0%", range=[0, 1], nticks=4)
    return Figure(
        title="SM time",
        caption="The share of the GPU's SM-seconds that prefill and decode occupied in each interval.",
        plot=plot,
    )


def good_and_load(replays: Sequence[PolicyReplay], slo: Slo) -> Figure:
    """Good requests, running, waiting and KV use; one line per policy, and a mark where each one breaks."""
    plot = stacked_panels(
        ("good requests, by arrival", "running requests", "waiting requests", "KV pool in use")
    )
    said = []
    for index, replay in enumerate(replays):
        line, good = replay.timeline, replay.good_over_time
        panels = (
            (good.end_s, good.good_ratio, "%{y:.1%}"),
            (line.end_s, line.running, "%{y:,}"),
            (line.end_s, line.waiting, "%{y:,}"),
            (line.end_s, line.kv_used_ratio, "%{y:.1%}"),
        )
        for row, (end_s, values, shown) in enumerate(panels, start=1):
            plot.add_scatter(
                x=minutes(end_s),
                y=values.astype(np.float32),
                mode="lines",
                name=replay.policy,
                legendgroup=replay.policy,
                showlegend=row == 1,
                line={
                    "color": colours.policy_colour(index),
                    "dash": colours.policy_dash(index),
                    "width": 1.5,
                    "shape": "vh" if row == 1 else "linear",
                },
                hovertemplate=shown,
                row=row,
                col=1,
            )
        broke_s = good.breaks_at_s(slo.attainment_ratio)
        if broke_s is not None:
            _mark_break(plot, index, replay.policy, broke_s)
            said.append(f"{replay.policy} at {broke_s / 60.0:.1f} min")
    plot.add_hline(y=slo.attainment_ratio, line={"color": colours.TARGET, "dash": "dot"}, row=1, col=1)
    plot.update_yaxes(rangemode="tozero", nticks=5)
    plot.update_yaxes(tickformat=".0%", range=[0, 1.06], row=1)
    plot.update_yaxes(tickformat=".0%", row=4)
    breaks = "No policy misses its targets for long."
    if said:
        breaks = f"Targets begin to be missed for long, at the crosses: {', '.join(said)}."
    return Figure(
        title="Attainment and load",
        caption=f"{breaks} Above, the share of good requests by when they arrived, and the share that must "
        "be; below, the most in each interval. A waiting line that keeps growing means more work than the "
        "policy can do.",
        plot=plot,
    )


def _mark_break(plot: go.Figure, index: int, policy: str, broke_s: float) -> None:
    plot.add_scatter(
        x=[broke_s / 60.0],
        y=[1.02],
        mode="markers",
        name=policy,
        legendgroup=policy,
        showlegend=False,
        marker={"color": colours.policy_colour(index), "symbol": "x", "size": 10},
        hovertemplate="breaks at %{x:.1f} min",
        row=1,
        col=1,
    )


def reasons(replays: Sequence[PolicyReplay]) -> Figure:
    """Stacked shares of step time by decision reason, one panel per policy."""
    plot = stacked_panels([replay.policy for replay in replays])
    shown: set[str] = set()
    for row, replay in enumerate(replays, start=1):
        for reason, values in replay.timeline.reason_ratio.items():
            name, colour = reason.replace("_", " "), colours.reason_colour(reason)
            _area(plot, row, replay.timeline.end_s, values, name, colour, legend=reason not in shown)
            shown.add(reason)
    plot.update_yaxes(tickformat=".0%", range=[0, 1], nticks=4)
    return Figure(
        title="Why: reasons of the decisions",
        caption="The share of the engine's step time by the reason that the policy gave for the step.",
        plot=plot,
    )


def _area(
    plot: go.Figure, row: int, end_s: Values, values: Values, name: str, colour: str, *, legend: bool
) -> None:
    """One layer of a stack; every value holds from the end of the interval before it."""
    if len(values) == 0:
        return
    plot.add_scatter(
        x=minutes(np.concatenate(([0.0], end_s))),
        y=np.concatenate((values[:1], values)).astype(np.float32),
        mode="lines",
        stackgroup=f"shares-{row}",
        name=name,
        legendgroup=name,
        showlegend=legend,
        line={"width": 0, "color": colour, "shape": "vh"},
        fillcolor=colour,
        hovertemplate="%{y:.1%}",
        row=row,
        col=1,
    )
