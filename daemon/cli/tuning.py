"""Which targets to try, and which of those that were tried to propose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import typer

_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5)
"""TBT targets to try if none are given, as shares of the present one."""
_MOST = 12
_MARGIN = 1.1
"""The proposed TTFT target is the needed one times this: the next minutes may be busier."""


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


def proposal(
    tenant: str, replay: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The strictest TBT target that all promises survive, by the policy of the highest goodput; None if none.

    The TTFT target is what its requests needed, and a tenth more, but never looser than the one that holds.
    """
    kept = [
        (variant["targets"][tenant]["tbt_ms"], -outcome["goodput_per_s"], index, variant, own)
        for index, (variant, outcome) in enumerate(zip(variants, replay["outcomes"][1:], strict=True))
        if (own := _of(tenant, outcome)) is not None and all(one["kept"] for one in outcome["tenants"])
    ]
    if not kept:
        return None
    _, _, _, variant, own = min(kept, key=lambda each: each[:3])
    targets = dict(variant["targets"][tenant])
    needed_ms = own["needed_ttft_fixed_ms"]
    if needed_ms is not None:
        targets["ttft_fixed_ms"] = min(
            targets["ttft_fixed_ms"], float(max(1, math.ceil(_MARGIN * max(0.0, needed_ms))))
        )
    return {"policy": variant["policy"], "targets": targets}


def in_a_line(tenant: str, found: Mapping[str, Any] | None) -> str:
    """The proposal, for people."""
    if found is None:
        return "no combination keeps what every tenant is promised: nothing is proposed"
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
