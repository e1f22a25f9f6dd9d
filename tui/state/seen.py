"""A request as it is judged: as its client saw it if the gateway wrote that down, else as its engine did."""

from __future__ import annotations

from pdmuxd.tui.client.wire import RequestEvent


def ttft_ms(one: RequestEvent) -> float | None:
    """Milliseconds to its first token."""
    return one.ttft_ms if one.delivered_ttft_ms is None else one.delivered_ttft_ms


def tbt_max_ms(one: RequestEvent) -> float | None:
    """Milliseconds of its longest gap."""
    return one.tbt_max_ms if one.delivered_ttft_ms is None else one.delivered_tbt_max_ms


def e2e_ms(one: RequestEvent) -> float | None:
    """Milliseconds to its last token."""
    return one.e2e_ms if one.delivered_e2e_ms is None else one.delivered_e2e_ms


def late_gaps(one: RequestEvent) -> int:
    """How many of its gaps were too long."""
    if one.delivered_ttft_ms is not None and one.delivered_tbt_gaps_missed is not None:
        return one.delivered_tbt_gaps_missed
    return (one.tbt_gaps or 0) - (one.tbt_gaps_met or 0)
