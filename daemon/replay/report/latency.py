"""Figures of what the clients saw: distributions of TTFT and TBT, and attainment."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
from plotly.subplots import make_subplots

from pdmuxd.daemon.replay.run import PolicyReplay
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import (
    MARGIN_PX,
    Figure,
    add_exceeding,
    exceeding_axis,
    log_axis,
    settle,
    single,
)
from pdmuxd.engine.core.slo import Slo


def ttft_exceeding(replays: Sequence[PolicyReplay], slo: Slo) -> Figure:
    """Share of requests whose first token took longer than so many times its own target."""
    plot = single(height=430)
    for index, replay in enumerate(replays):
        curves = replay.curves
        add_exceeding(
            plot,
            index,
            replay.policy,
            curves.ttft_over_target,
            curves.ttft_over_target_share,
            unit=" of its target",
        )
    every = np.concatenate([[1.0], *(replay.curves.ttft_over_target for replay in replays)])
    plot.update_xaxes(**log_axis(every, "TTFT over its own target"))
    exceeding_axis(plot, slo.attainment_ratio, target=1.0)
    return Figure(
        title="Time to first token over its target",
        caption="Share of requests whose first token took longer than so many times what was due to it. A "
        "line that passes below the crossing of the grey lines keeps the target; one that ends high up has "
        "requests that never got a token.",
        plot=plot,
    )


def tbt_exceeding(replays: Sequence[PolicyReplay], slo: Slo) -> Figure:
    """Share of gaps longer than so long, with the target."""
    plot = single(height=430)
    for index, replay in enumerate(replays):
        curves = replay.curves
        add_exceeding(plot, index, replay.policy, curves.gap_s * 1000.0, curves.gap_share, unit=" ms")
    target_ms = slo.tbt_s * 1000.0
    every_ms = np.concatenate([*(replay.curves.gap_s * 1000.0 for replay in replays), [target_ms]])
    plot.update_xaxes(**log_axis(every_ms, "TBT, ms"))
    exceeding_axis(plot, slo.attainment_ratio, target=target_ms)
    return Figure(
        title="Time between tokens",
        caption="Share of all gaps between two tokens of a request that were longer. A line that passes "
        "below the crossing of the grey lines keeps the target.",
        plot=plot,
    )


def attainment(replays: Sequence[PolicyReplay], *, by_tenant: bool) -> Figure:
    """Bars per prompt length class or tenant: TTFT, TBT and joint attainment."""
    panels = ("TTFT", "TBT", "good")
    plot = make_subplots(rows=1, cols=3, shared_yaxes=True, subplot_titles=panels, horizontal_spacing=0.04)
    for index, replay in enumerate(replays):
        metrics = replay.metrics
        shown = [g for g in (metrics.by_tenant if by_tenant else metrics.by_input_tokens) if g.requests]
        values = (
            [group.ttft_attainment_ratio for group in shown],
            [group.tbt_attainment_ratio for group in shown],
            [group.good_ratio for group in shown],
        )
        for column, ratios in enumerate(values, start=1):
            plot.add_bar(
                x=[f"{escape(group.name)}<br>{group.requests:,}" for group in shown],
                y=ratios,
                name=replay.policy,
                legendgroup=replay.policy,
                showlegend=column == 1,
                marker={"color": colours.policy_colour(index)},
                hovertemplate="%{y:.1%}",
                row=1,
                col=column,
            )
    settle(plot, height=400)
    plot.update_yaxes(tickformat=".0%", range=[0, 1.02])
    kind = "tenant" if by_tenant else "prompt length"
    return Figure(
        title=f"Attainment by {kind}",
        caption="Shares of requests with TTFT within target, of gaps within target, and of good requests "
        f"(TTFT, and the p99 of the request's own gaps). Under each {kind}, its number of requests.",
        plot=plot,
    )


def ttft_by_length(replays: Sequence[PolicyReplay], slo: Slo) -> Figure:
    """TTFT against the prompt, one panel per policy, with the target of an uncached prompt."""
    columns = min(2, len(replays))
    rows = -(-len(replays) // columns)
    plot = make_subplots(
        rows=rows,
        cols=columns,
        shared_xaxes=True,
        shared_yaxes=True,
        subplot_titles=[replay.policy for replay in replays],
        horizontal_spacing=0.03,
        vertical_spacing=0.22 / rows,
    )
    every_tokens = np.concatenate([[1], *(replay.curves.scatter_input_tokens for replay in replays)])
    tokens = np.geomspace(every_tokens[1:].min(initial=10**7), every_tokens.max(), 60)
    target_ms = 1000.0 * (slo.ttft_fixed_s + slo.ttft_per_1k_new_tokens_s * tokens / 1000.0)
    for index, replay in enumerate(replays):
        at = {"row": index // columns + 1, "col": index % columns + 1}
        plot.add_scatter(
            x=replay.curves.scatter_input_tokens.astype(np.int32),
            y=(replay.curves.scatter_ttft_s * 1000.0).astype(np.float32),
            mode="markers",
            name=replay.policy,
            showlegend=False,
            marker={"color": colours.policy_colour(index), "size": 3.5, "opacity": 0.5},
            hovertemplate="%{x:,} tokens<br>%{y:,.0f} ms",
            **at,
        )
        plot.add_scatter(
            x=tokens.astype(np.float32),
            y=target_ms.astype(np.float32),
            mode="lines",
            name="target, nothing cached",
            legendgroup="target",
            showlegend=index == 0,
            line={"color": colours.TARGET, "dash": "dash", "width": 2},
            hoverinfo="skip",
            **at,
        )
    settle(plot, height=290 * rows + MARGIN_PX)
    every_ms = np.concatenate([target_ms, *(r.curves.scatter_ttft_s * 1000.0 for r in replays)])
    plot.update_xaxes(**log_axis(tokens, ""))
    plot.update_yaxes(**log_axis(every_ms, ""))
    plot.update_xaxes(title="prompt tokens", row=rows)
    plot.update_yaxes(title="TTFT, ms", col=1)
    return Figure(
        title="TTFT against prompt length",
        caption="One dot per request (a random sample of long traces). The grey line is the target of a "
        "prompt with nothing in the cache; a cached prefix lowers it.",
        plot=plot,
    )
