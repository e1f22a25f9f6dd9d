"""Figures of what the engine did over virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from pdmuxd.daemon.replay.report import colours
from pdmuxd.daemon.replay.report.plots import Figure, Values, minutes, stacked_panels
from pdmuxd.daemon.replay.run import PolicyReplay


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


def load(replays: Sequence[PolicyReplay]) -> Figure:
    """Running, waiting and KV use; one line per policy."""
    plot = stacked_panels(("running requests", "waiting requests", "KV pool in use"))
    for index, replay in enumerate(replays):
        line = replay.timeline
        for row, values in enumerate((line.running, line.waiting, line.kv_used_ratio), start=1):
            plot.add_scatter(
                x=minutes(line.end_s),
                y=values.astype(np.float32),
                mode="lines",
                name=replay.policy,
                legendgroup=replay.policy,
                showlegend=row == 1,
                line={
                    "color": colours.policy_colour(index),
                    "dash": colours.policy_dash(index),
                    "width": 1.5,
                },
                hovertemplate="%{y:.1%}" if row == 3 else "%{y:,}",
                row=row,
                col=1,
            )
    plot.update_yaxes(rangemode="tozero", nticks=5)
    plot.update_yaxes(tickformat=".0%", row=3)
    return Figure(
        title="Load",
        caption="The most in each interval. A waiting line that keeps growing means more work than the "
        "policy can do.",
        plot=plot,
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
