"""What is predicted of new targets, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from pdmuxd.daemon.cli.output import percent, print_table

_EXPECTED = {"kept": "yes", "at_risk": "at risk", "missed": "no", None: "-"}
_LOADS = ("usual", "busy")


def print_outlook(outlook: Mapping[str, Any]) -> None:
    """The verdict in a line, the splits at a usual and a busy load, and each tenant's row."""
    minutes = outlook["window_ms"] / 60_000
    typer.echo(f"{outlook['verdict'].replace('_', ' ')}: {outlook['text']}")
    if outlook["policy"] is None:
        return
    typer.echo(
        f"Predicted with policy {outlook['policy']} and the {outlook['requests']:,} requests of the last "
        f"{minutes:g} minutes. The ranges in brackets come from {outlook['checked']} past forecasts."
    )
    before, after = outlook["before"], outlook["after"]
    for name, was, becomes in zip(_LOADS, before["loads"], after["loads"], strict=False):
        load = becomes["load"]
        typer.echo(
            f"At {name} load, {load['decode_bs']} requests decode and {load['prefill_new_tokens']:,} prompt "
            f"tokens wait:\n  with today's targets  {was['text']}\n  with the new targets  {becomes['text']}"
        )
    was, becomes = _binding(before), _binding(after)
    if was == becomes:
        typer.echo(f"The strictest TBT target is that of {was}, before and after.")
    else:
        typer.echo(f"The strictest TBT target is that of {was}; with the new targets, of {becomes}.")
    print_table([_row(one) for one in outlook["tenants"]], empty="")


def _binding(under: Mapping[str, Any]) -> str:
    shares = under["binding"][:3]
    return ", ".join(f"{one['tenant']} {one['time_ratio']:.0%} of the time" for one in shares) or "no tenant"


def _row(tenant: Mapping[str, Any]) -> dict[str, object]:
    measured, before, after = tenant["measured"], tenant["before"], tenant["after"]
    return {
        "tenant": tenant["tenant"],
        "TTFT p99 ms": _change(before, after, "ttft_p99_ms", "{:,.0f}"),
        "TTFT met": _shares(measured, after, tenant["ttft_band"], "ttft_attainment_ratio"),
        "TBT met": _shares(measured, after, tenant["tbt_band"], "tbt_attainment_ratio"),
        "promised": percent(tenant["attainment_ratio"]),
        "kept": _EXPECTED[tenant["expected"]],
    }


def _shares(measured: Any, after: Any, band: Any, name: str) -> str:  # noqa: ANN401 - JSON
    """What clients got, what is predicted, and its band."""
    change = _change(measured, after, name, "{:.1%}")
    return change if band is None else f"{change} ({band['low_ratio']:.1%} to {band['high_ratio']:.1%})"


def _change(before: Any, after: Any, name: str, form: str) -> str:  # noqa: ANN401 - JSON
    values = ["-" if one is None or one[name] is None else form.format(one[name]) for one in (before, after)]
    return values[0] if values[0] == values[1] else f"{values[0]} -> {values[1]}"
