"""How long each split was used, the contention guard as a heat map, and how far predictions were off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request
from starlette.responses import Response

from pdmuxd.controlplane.api.partitions import (
    DriftOut,
    GuardCellOut,
    PartitionsOut,
    drift_of,
    guard_of,
    partitions_of,
)
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.overview import Pictures
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import decided, happened, learned, modes, sm_times
from pdmuxd.controlplane.web.tables import (
    Column,
    CsvName,
    Table,
    count,
    of_ms_in_s,
    ratio,
    share,
    when,
    yes_no,
)
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown

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


def partition_routes(
    control_plane: ControlPlane, telemetry: Telemetry, history: History, pictures: Pictures
) -> APIRouter:
    """`/ui/partitions`."""
    router = page_router()

    @router.get("/partitions")
    async def show_partitions(
        request: Request, at: At = None, window: MaybeWindow = None, csv: CsvName = ""
    ) -> Response:
        shown = Shown.now_unless(at, window, time.time())
        if shown.is_all:
            # In the event loop: to read what has drifted moves its windows on.
            drift = drift_of(telemetry)
            return await asyncio.to_thread(show, request, shown, drift, csv)
        between = partial(control_plane.profiles.changes_between, instant(shown.period.start_s), shown.end)
        tables = (
            modes(await decided(history, shown)),
            await sm_times(history, shown),
            learned(await asyncio.to_thread(between)),
            await happened(history, shown, "engine", "policy", "profile"),
        )
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            title="Partitions",
            heading="Partitions and guard, as they were",
            lines=("The guard's map and how far predictions are off are told of now alone.",),
            shown=shown,
            picture=await pictures.of(shown),
            tables=tables,
        )

    def show(request: Request, shown: Shown, drift: DriftOut, csv: str) -> Response:
        cells, used = guard_of(telemetry).cells, partitions_of(telemetry)
        return sheet(
            request,
            csv,
            "partitions.html",
            title="Partitions",
            shown=shown,
            tables=(splits(used), guard_cells(cells), _drift(drift)),
            used=used,
            prompts=sorted({cell.prefill_new for cell in cells}),
            prompt_names=PROMPTS,
            heat_map=heat_map(cells),
        )

    return router


def splits(used: PartitionsOut) -> Table:
    """How long each split was in use, and for how many tokens."""
    alone = (("one batch", used.fused), ("decode alone", used.decode))
    return Table(
        name="splits",
        title="Splits",
        note="share of the engine's time since it started",
        columns=(
            Column("split", "Prefill | decode SMs"),
            yes_no("in_force", "Now"),
            share("time_ratio", "Share of time"),
            of_ms_in_s("time_ms", "Time, s"),
            count("decisions", "Decisions"),
            count("prefill_tokens", "Prompt tokens"),
            count("decode_tokens", "Output tokens"),
        ),
        rows=[
            *((f"{one.prefill_sms} | {one.decode_sms}", one.in_force, *_use(one)) for one in used.groups),
            *((name, None, *_use(one)) for name, one in alone),
            ("idle", None, used.idle.time_ratio, used.idle.time_ms, None, None, None),
        ],
        empty="No engine has said which splits it has.",
    )


def _use(one: object) -> tuple[object, ...]:
    names = ("time_ratio", "time_ms", "decisions", "prefill_tokens", "decode_tokens")
    return tuple(getattr(one, name) for name in names)


def guard_cells(cells: Sequence[GuardCellOut]) -> Table:
    """All cells, which the heat map sums up."""
    return Table(
        name="guard",
        title="Contention guard",
        note="by how much decode slows beside a prefill, at most",
        columns=(
            count("decode_sms", "Decode SMs"),
            count("prefill_new", "New tokens"),
            count("prefill_reused", "Cached tokens"),
            count("decode_bs", "Batch"),
            count("decode_reused", "Context"),
            ratio("ratio", "Ratio"),
            ratio("observed_max_ratio", "Observed at most"),
            ratio("observed_p50_ratio", "Observed p50"),
            count("samples", "Steps"),
            yes_no("raised", "Raised"),
            when("changed_at", "Changed"),
        ),
        rows=[tuple(getattr(cell, name) for name in GuardCellOut.model_fields) for cell in cells],
        empty="No decode step has run beside a prefill yet.",
    )


def _drift(drift: DriftOut) -> Table:
    return Table(
        name="drift",
        title="What was measured, by what was predicted",
        note="last 10 minutes; an alarm is raised" if drift.alarm else "last 10 minutes",
        columns=(
            Column("work", "Work"),
            count("sms", "SMs"),
            count("samples", "Samples"),
            ratio("p50_ratio", "p50"),
            ratio("p90_ratio", "p90"),
            share("error_p50_ratio", "Off by, p50"),
            share("error_p90_ratio", "p90"),
        ),
        rows=[
            (
                one.work,
                one.sms,
                one.samples,
                one.p50_ratio,
                one.p90_ratio,
                one.error_p50_ratio,
                one.error_p90_ratio,
            )
            for one in drift.pairs
        ],
        empty="Nothing has been measured yet.",
    )


def heat_map(cells: Sequence[GuardCellOut]) -> Mapping[int, Mapping[int, MapCell]]:
    """The map by decode SMs, and then by the step of the prompt's new tokens."""
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
