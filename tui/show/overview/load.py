"""What is asked of the engine, and what it does."""

from __future__ import annotations

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import meter
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Line, Run, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

METER_WIDTH = 12


def load(view: View, width: int, height: int) -> list[Line]:
    """Requests, throughput, memory."""
    stats = view.state.stats
    head = heading(view, "Load", width)
    if stats is None:
        return [head]
    goodput_share = None
    if stats.goodput_per_s is not None and stats.requests_per_s:
        goodput_share = min(1.0, stats.goodput_per_s / stats.requests_per_s)
    kv_share = None
    if stats.kv_used_tokens is not None and stats.kv_capacity_tokens:
        kv_share = stats.kv_used_tokens / stats.kv_capacity_tokens
    requests = _pairs(
        ("running", formats.count(stats.running)),
        ("waiting", formats.count(stats.waiting)),
        ("prefilling", formats.count(stats.prefilling)),
        ("at the gateway", formats.count(stats.in_flight)),
    )
    throughput = _pairs(
        ("prompt", f"{formats.count(stats.prompt_tokens_per_s)} tok/s"),
        ("output", f"{formats.count(stats.output_tokens_per_s)} tok/s"),
        ("requests", f"{formats.rate(stats.requests_per_s)}/s"),
        ("goodput", f"{formats.rate(stats.goodput_per_s)}/s ({formats.percent(goodput_share)})"),
    )
    memory = (
        line(("KV ", Role.DIM))
        + meter(kv_share, METER_WIDTH)
        + line(
            f" {formats.count(stats.kv_used_tokens)} of {formats.count(stats.kv_capacity_tokens)} "
            f"({formats.percent(kv_share)})"
        )
        + line(("   cache hits ", Role.DIM), formats.percent(stats.cache_hit_ratio))
        + line(("   cached ", Role.DIM), formats.count(stats.cached_tokens))
    )
    return [head, requests, throughput, memory][:height]


def _pairs(*pairs: tuple[str, str]) -> Line:
    runs: list[Run] = []
    for name, value in pairs:
        runs += [(f"{name} ", Role.DIM), (f"{value}   ", Role.PLAIN)]
    return tuple(runs)
