"""The engine and its GPU: how long each split was used, the guard as a map, how far predictions were off."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.partitions import GuardCellOut, drift_of, guard_of, partitions_of
from pdmuxd.controlplane.telemetry import serializers
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.pages import page, page_router

PROMPTS = ("below 2K", "2K to 8K", "8K to 32K", "32K to 128K", "128K to 512K")
"""Names of the guard's steps of a prompt's new tokens; each is four times the one before."""
HOTTEST_RATIO = 2.0
"""A slowdown from which on the map has its strongest shade; each cell says its number too."""
SHADES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """The highest ratio of the cells that differ in other things only."""

    ratio: float
    observed_max_ratio: float | None
    samples: int
    shade: int


def gpu_routes(telemetry: Telemetry) -> APIRouter:
    """`/ui/gpu`."""
    router = page_router()

    @router.get("/gpu")
    async def show_gpu(request: Request) -> Response:
        # In the event loop: to read what has drifted moves its windows on.
        drift = drift_of(telemetry)
        return await asyncio.to_thread(show, request, drift)

    def show(request: Request, drift: object) -> Response:
        status, cells = telemetry.status(), guard_of(telemetry).cells
        return page(
            request,
            "gpu.html",
            title="GPU",
            engine=serializers.engine(status, telemetry.clock(), reason=None),
            stats=status.stats,
            partitions=partitions_of(telemetry),
            prompts=sorted({cell.prefill_new for cell in cells}),
            prompt_names=PROMPTS,
            guard=heat_map(cells),
            cells=len(cells),
            drift=drift,
        )

    return router


def heat_map(cells: Sequence[GuardCellOut]) -> Mapping[int, Mapping[int, MapCell]]:
    """By decode SMs, and then by the step of the prompt's new tokens."""
    found: dict[int, dict[int, MapCell]] = {}
    for cell in sorted(cells, key=lambda one: (one.decode_sms, one.prefill_new, one.ratio)):
        row = found.setdefault(cell.decode_sms, {})
        before = row.get(cell.prefill_new)
        observed = [
            ratio
            for ratio in (cell.observed_max_ratio, before.observed_max_ratio if before else None)
            if ratio is not None
        ]
        row[cell.prefill_new] = MapCell(
            ratio=cell.ratio,
            observed_max_ratio=max(observed, default=None),
            samples=cell.samples + (before.samples if before else 0),
            shade=shade_of(cell.ratio),
        )
    return found


def shade_of(ratio: float) -> int:
    """0 where nothing slows down, up to SHADES."""
    return max(0, min(SHADES, round(SHADES * (ratio - 1.0) / (HOTTEST_RATIO - 1.0))))
