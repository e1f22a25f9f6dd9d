"""What is asked of the engine against what it serves."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, Run, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

MINUTE_S = 60
GROWING_PER_S = 0.05
"""The queue grows by more than a request in 20 s."""


def load(view: View, width: int, height: int) -> list[Line]:
    """Requests that come, end and wait; tokens and memory."""
    stats = view.state.stats
    head = heading(view, "Demand and what is served, 1 min", width)
    if stats is None:
        return [head]
    refused = sum(one.refused_per_s for one in view.state.tenants.tenants) if view.state.tenants else 0.0
    growth = view.state.series.growth_per_s(MINUTE_S, view.now_s)
    served = stats.requests_per_s
    comes = None if served is None or growth is None else max(0.0, served + growth + refused)
    is_growing = growth is not None and growth > GROWING_PER_S
    total = stats.waiting if stats.waiting_total is None else stats.waiting_total
    late = stats.late_now or 0
    waits: list[Run] = [("wait ", Role.DIM), (formats.count(total), Role.BAD if late else Role.PLAIN)]
    if stats.late_now is not None:
        waits.append((f", {formats.count(late)} late", Role.BAD if late else Role.DIM))
    requests = line(
        ("requests/s ", Role.DIM),
        (f"{formats.rate(comes)} come", Role.WARN if is_growing else Role.PLAIN),
        (f"  {formats.rate(served)} served  {formats.rate(stats.goodput_per_s)} in time  ", Role.PLAIN),
        (f"{formats.rate(refused)} refused  ", Role.WARN if refused else Role.PLAIN),
        *waits,
    )
    kv_share = None
    if stats.kv_used_tokens is not None and stats.kv_capacity_tokens:
        kv_share = stats.kv_used_tokens / stats.kv_capacity_tokens
    # A long prompt counts all at once: what the last second had says little.
    prompt = view.state.series.counted_per_s("prompt_tokens", MINUTE_S, view.now_s)
    output = view.state.series.counted_per_s("output_tokens", MINUTE_S, view.now_s)
    tokens = line(
        ("tokens/s   ", Role.DIM),
        f"{formats.count(stats.prompt_tokens_per_s if prompt is None else prompt)} prompt  ",
        f"{formats.count(stats.output_tokens_per_s if output is None else output)} out  ",
        ("decoding ", Role.DIM),
        f"{formats.count(stats.running)}  ",
        ("KV ", Role.DIM),
        (
            f"{formats.percent(kv_share)}  ",
            Role.WARN if kv_share is not None and kv_share > 0.95 else Role.PLAIN,
        ),
        ("cache hits ", Role.DIM),
        formats.percent(stats.cache_hit_ratio),
    )
    return [head, requests, tokens][:height]
