"""What the figures share: panels, legends, log axes. Text, grid and paper colours come from the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from pdmuxd.daemon.report import colours

Values = NDArray[np.float64]

PANEL_PX = 190
MARGIN_PX = 130
LEAST_SHARE = 1e-4
"""Where the logarithmic axis of shares ends."""
MAX_FINE_DECADES = 2.5
"""Up to so many decades, an axis has room for ticks at 1, 2 and 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot with its heading and the sentence that says how to read it."""

    title: str
    caption: str
    plot: go.Figure


def settle(plot: go.Figure, height: int) -> None:
    """Legend on top, room for titles, no template: the page brings the theme."""
    plot.update_layout(
        height=height,
        margin={"l": 70, "r": 20, "t": 70, "b": 55},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top"},
        template=None,
        bargap=0.25,
    )


def single(height: int) -> go.Figure:
    """One panel."""
    plot = go.Figure()
    settle(plot, height)
    return plot


def stacked_panels(titles: Sequence[str]) -> go.Figure:
    """One panel below the other over virtual time in minutes."""
    rows = len(titles)
    plot = make_subplots(
        rows=rows, cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.25 / (rows + 1)
    )
    settle(plot, height=PANEL_PX * rows + MARGIN_PX)
    plot.update_xaxes(title="virtual time, minutes", row=rows)
    return plot


def log_axis(values: Iterable[float], title: str) -> dict[str, object]:
    """A logarithmic axis around the positive `values`, with ticks that read as plain numbers."""
    positive = [value for value in values if value > 0]
    low, high = (np.log10(min(positive)), np.log10(max(positive))) if positive else (0.0, 1.0)
    pad = 0.03 * max(high - low, 1.0)
    low, high = low - pad, high + pad
    steps = (1, 2, 5) if high - low <= MAX_FINE_DECADES else (1,)
    ticks = [
        step * 10.0**decade
        for decade in range(int(np.floor(low)), int(np.ceil(high)) + 1)
        for step in steps
        if low <= np.log10(step * 10.0**decade) <= high
    ]
    return {
        "type": "log",
        "range": [float(low), float(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.0f}" if tick >= 1 else f"{tick:g}" for tick in ticks],
        "title": title,
    }


def add_exceeding(
    plot: go.Figure, index: int, name: str, values: Values, share: Values, *, unit: str
) -> None:
    """The complementary distribution: `share` of values at or below each become those above it."""
    above = np.maximum(1.0 - share, LEAST_SHARE)
    plot.add_scatter(
        x=values.astype(np.float32),
        y=above.astype(np.float32),
        mode="lines",
        name=name,
        legendgroup=name,
        line={
            "color": colours.policy_colour(index),
            "dash": colours.policy_dash(index),
            "width": 2,
            "shape": "hv",
        },
        hovertemplate="%{y:.3%} above %{x:,.4g}" + unit,
    )


def exceeding_axis(plot: go.Figure, attainment_ratio: float, *, target: float) -> None:
    """Shares on a logarithmic axis, and the two lines below whose crossing a distribution must pass."""
    ticks = [1.0, 0.1, 0.01, 0.001, LEAST_SHARE]
    above = max(1.0 - attainment_ratio, LEAST_SHARE)
    plot.update_yaxes(
        type="log",
        range=[float(np.log10(LEAST_SHARE)), 0.05],
        tickvals=ticks,
        ticktext=["100%", "10%", "1%", "0.1%", "0.01%"],
        title="share above",
    )
    plot.add_hline(y=above, line={"color": colours.TARGET, "dash": "dot", "width": 1.5})
    plot.add_vline(x=target, line={"color": colours.TARGET, "dash": "dash", "width": 1.5})
    plot.add_annotation(
        text=f"{100 * attainment_ratio:g}% within",
        x=0,
        xref="paper",
        xanchor="left",
        y=float(np.log10(above)),
        yanchor="bottom",
        showarrow=False,
        font={"size": 11},
    )


def minutes(seconds: Values) -> NDArray[np.float32]:
    """Minutes, for a time axis."""
    return (seconds / 60.0).astype(np.float32)
