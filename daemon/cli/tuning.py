"""Which targets to try, and which of those that were tried to propose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from pdmuxd.controlplane.telemetry.forecast_record import least_requests

_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5)
"""TBT targets to try if none are given, as shares of the present one."""
_MOST = 12
_MARGIN = 1.1
"""Proposed targets leave this over what was needed: the next minutes may be busier."""


def candidates(
    tenant: str, targets: Mapping[str, float], tbt_ms: str | None, policies: str | None
) -> list[dict[str, Any]]:
    """A variant for each policy and TBT target. Raises: BadParameter."""
    tried = [share * targets["tbt_ms"] for share in _SHARES] if tbt_ms is None else _numbers(tbt_ms)
    names: list[str | None] = [None] if policies is None else [*policies.split(",")]
    variants = [
        {
            "label": f"{name or 'in force'}, TBT {value:g} ms",
            "policy": name,
            "targets": {tenant: {**targets, "tbt_ms": round(value, 3)}},
        }
        for name in names
        for value in sorted(tried)
    ]
    if not 0 < len(variants) <= _MOST:
        raise typer.BadParameter(
            f"{len(variants)} combinations of policies and targets; allowed are 1 to {_MOST}"
        )
    return variants


def proposals(
    tenant: str,
    replay: Mapping[str, Any],
    variants: Sequence[Mapping[str, Any]],
    *,
    ttft_delivery_ms: float = 0.0,
    gap_delivery_ms: float = 0.0,
) -> list[dict[str, Any]]:
    """Targets that all promises survive, the strictest TBT first, then by the goodput of their policy.

    A replay is of the device alone, so what delivery adds is added to it. Both targets leave a tenth over
    what was needed; the TTFT target is never looser than the one that holds.
    """
    kept = [
        (variant["targets"][tenant]["tbt_ms"], -outcome["goodput_per_s"], index, variant, own)
        for index, (variant, outcome) in enumerate(zip(variants, replay["outcomes"][1:], strict=True))
        if (own := _of(tenant, outcome)) is not None
        and all(one["kept"] for one in outcome["tenants"])
        and _MARGIN * ((own.get("tbt_p99_ms") or 0.0) + gap_delivery_ms)
        <= variant["targets"][tenant]["tbt_ms"]
    ]
    found = []
    for *_, variant, own in sorted(kept, key=lambda each: each[:3]):
        targets = dict(variant["targets"][tenant])
        needed_ms = own["needed_ttft_fixed_ms"]
        if needed_ms is not None:
            needed_ms = _MARGIN * max(0.0, needed_ms + ttft_delivery_ms)
            targets["ttft_fixed_ms"] = min(targets["ttft_fixed_ms"], float(max(1, math.ceil(needed_ms))))
        found.append({"policy": variant["policy"], "targets": targets})
    return found


def first_kept(
    found: Sequence[dict[str, Any]], preview: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The first that is also predicted to be kept by all with traffic, its band included. Of another policy
    than the one in force nothing can be predicted: there the replay decides."""
    for one in found:
        if one["policy"] is not None:
            return one
        told = preview(one["targets"])["tenants"]
        if all(each["expected"] in ("kept", None) for each in told):
            return one
    return None


def require_traffic(tenant: str, replay: Mapping[str, Any], promised_ratio: float) -> None:
    """Refuse to propose from so little that nobody can tell what is kept. Raises: BadParameter."""
    own = _of(tenant, replay["outcomes"][0])
    requests, least = (0 if own is None else own["requests"]), least_requests(promised_ratio)
    if requests < least:
        raise typer.BadParameter(
            f"{requests} requests of {tenant} are too few to tell whether {promised_ratio:.4g} of them are "
            f"in time: at least {least} are needed; try more --minutes"
        )


def in_a_line(tenant: str, found: Mapping[str, Any] | None) -> str:
    """The proposal, for people."""
    if found is None:
        return (
            "no combination is sure to keep what every tenant is promised, with a tenth to spare and with "
            "what delivery adds: nothing is proposed"
        )
    targets = found["targets"]
    policy = f", policy {found['policy']}" if found["policy"] is not None else ""
    return (
        f"proposed for {tenant}: TBT {targets['tbt_ms']:g} ms, TTFT {targets['ttft_fixed_ms']:g} ms and "
        f"{targets['ttft_per_1k_new_tokens_ms']:g} ms per 1,000 new tokens{policy}"
    )


def _of(tenant: str, outcome: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return next((one for one in outcome["tenants"] if one["tenant"] == tenant), None)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--tbt-ms is {text!r}; allowed are numbers with commas between") from None
