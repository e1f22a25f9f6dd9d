"""Replays of recent traffic with other targets and policies: a form to begin one, and what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import product

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.replays import JobId, ReplayIn, ReplayOut, begin
from pdmuxd.controlplane.api.slos import SloOut
from pdmuxd.controlplane.node.traffic_replays import MOST_VARIANTS, ReplayJobs
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.forms import number_of, read_form, refused, require_own_form
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.reports import Reports, report_table
from pdmuxd.controlplane.web.tables import (
    Column,
    CsvName,
    Link,
    Table,
    count,
    long,
    ms,
    rate,
    share,
    when,
    yes_no,
)
from pdmuxd.engine.core.errors import ConflictError, EngineError, InvalidValueError

FIELDS = {
    "minutes": ("Minutes of traffic, until now", "10"),
    "tenant": ("Tenant whose target is tried", ""),
    "tbt_ms": ("TBT targets to try for it, ms", ""),
    "policies": ("Policies to try", ""),
    "rate_scale": ("Times as many requests", "1"),
}
LOOK_AGAIN_S = 2
TARGETS = ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "tbt_ms", "attainment_ratio", "e2e_ms")


def replay_routes(
    control_plane: ControlPlane, replays: ReplayJobs, predictors: Predictors, reports: Reports
) -> APIRouter:
    """`/ui/replays` and `/ui/replays/{job_id}`."""
    router = page_router()

    # Asynchronous: the jobs belong to the event loop.
    @router.get("/replays")
    async def list_replays(request: Request, csv: CsvName = "") -> Response:
        return await show(request, csv)

    @router.post("/replays")
    async def begin_replay(request: Request) -> Response:
        sent = await read_form(request)
        require_own_form(request, sent, session_of(request))
        try:
            wanted = await asyncio.to_thread(_wanted, control_plane, sent)
            begun = await begin(wanted, replays, predictors)
        except (InvalidValueError, EngineError, ConflictError) as error:
            status = 422 if isinstance(error, InvalidValueError) else 409
            return await show(request, "", sent, str(error), status)
        return RedirectResponse(f"/ui/replays/{begun.id}", 303)

    @router.get("/replays/{job_id}")
    async def show_replay(request: Request, job_id: JobId, csv: CsvName = "") -> Response:
        one = ReplayOut.of(replays.get(job_id))
        goes_on = one.state in ("waiting", "running")
        answer = await asyncio.to_thread(
            sheet,
            request,
            csv,
            title=f"Replay {one.id}",
            heading=f"Replay {one.id} is {one.state}",
            lines=(
                f"{one.requests} requests, {one.progress_ratio:.0%} done; the first is what is in force.",
                one.reason or "",
            ),
            state="good" if one.state == "done" else "bad" if one.state == "failed" else "quiet",
            tables=(_outcomes(one), _tenants(one)),
        )
        if goes_on:
            answer.headers["Refresh"] = str(LOOK_AGAIN_S)
        return answer

    async def show(
        request: Request,
        csv: str,
        sent: Mapping[str, str] | None = None,
        error: str | None = None,
        status: int = 200,
    ) -> Response:
        typed = {name: (sent or {}).get(name, default) for name, (_, default) in FIELDS.items()}
        may_begin = caller_of(request.scope).role == "admin"
        jobs = _jobs([ReplayOut.of(job) for job in replays.latest()])
        return await asyncio.to_thread(
            sheet,
            request,
            csv,
            "replays.html",
            status,
            title="Replays",
            heading="Replays of recent traffic",
            lines=("The emulator serves it again, as is in force and otherwise. Nothing is applied.",),
            tables=(jobs, await asyncio.to_thread(report_table, reports, shows_paths=may_begin)),
            fields=FIELDS,
            typed=typed,
            error=error,
            may_begin=may_begin,
        )

    return router


def _wanted(control_plane: ControlPlane, sent: Mapping[str, str]) -> ReplayIn:
    """A variant for each target and policy that was typed. Raises: InvalidValueError, NotFoundError."""
    tenant = sent.get("tenant", "").strip()
    targets = sent.get("tbt_ms", "").replace(";", " ").split()
    policies = [part.strip() for part in sent.get("policies", "").split(",") if part.strip()]
    if targets and not tenant:
        raise InvalidValueError("tenant", "tenant is empty; name the one whose targets are tried")
    scale = number_of(sent.get("rate_scale", "") or "1")
    now = SloOut.of(control_plane.get_slo(tenant), in_force=False) if targets else None
    variants = []
    for policy, target in product(policies or (None,), targets or (None,)):
        said = [policy or "in force", *([f"TBT {target} ms"] if target else [])]
        one: dict[str, object] = {"label": ", ".join(said)[:60], "policy": policy, "rate_scale": scale}
        if target is not None and now is not None:
            held = {name: getattr(now, name) for name in TARGETS}
            one["targets"] = {tenant: {**held, "tbt_ms": number_of(target)}}
        variants.append(one)
    if len(variants) > MOST_VARIANTS:
        raise InvalidValueError(
            "tbt_ms", f"these are {len(variants)} combinations; allowed are {MOST_VARIANTS}"
        )
    try:
        return ReplayIn.model_validate(
            {"minutes": number_of(sent.get("minutes", "") or "10"), "variants": variants}
        )
    except ValidationError as error:
        raise refused(error, "minutes") from None


def _jobs(jobs: Sequence[ReplayOut]) -> Table:
    return Table(
        name="replays",
        title="The latest",
        note="newest first",
        columns=(
            Column("id", "Replay"),
            when("created_at", "Begun"),
            Column("state", "State"),
            share("progress_ratio", "Done"),
            count("requests", "Requests"),
            long("variants", "Beside what is in force"),
            long("reason", "Why it failed"),
        ),
        rows=[
            (
                Link(one.id, f"/ui/replays/{one.id}"),
                one.created_at,
                one.state,
                one.progress_ratio,
                one.requests,
                "; ".join(each.label for each in one.outcomes[1:]),
                one.reason or "",
            )
            for one in jobs
        ],
        empty="Nothing was replayed since the daemon started, which is as long as replays are kept.",
    )


def _outcomes(one: ReplayOut) -> Table:
    return Table(
        name="outcomes",
        title="Side by side",
        columns=(
            Column("label", "Served"),
            Column("policy", "Policy"),
            count("requests", "Requests"),
            count("finished", "Finished"),
            rate("goodput_per_s", "In time per s"),
            share("prefill_sm_ratio", "SM time, prefill"),
            share("decode_sm_ratio", "decode"),
            yes_no("all_kept", "All promises kept"),
        ),
        rows=[
            (
                each.label,
                each.policy,
                each.requests,
                each.finished,
                each.goodput_per_s,
                each.prefill_sm_ratio,
                each.decode_sm_ratio,
                all(tenant.kept for tenant in each.tenants),
            )
            for each in one.outcomes
        ],
        empty="There is no outcome yet." if one.reason is None else "It came to none.",
    )


def _tenants(one: ReplayOut) -> Table:
    return Table(
        name="tenants",
        title="What each tenant got",
        columns=(
            Column("tenant", "Tenant"),
            Column("label", "Served"),
            yes_no("kept", "Promise kept"),
            share("promised_ratio", "Promised"),
            share("ttft_attainment_ratio", "TTFT in time"),
            ms("ttft_p99_ms", "TTFT p99, ms"),
            share("tbt_attainment_ratio", "TBT in time"),
            ms("tbt_p99_ms", "TBT p99, ms"),
            ms("needed_ttft_fixed_ms", "TTFT that would be kept, ms"),
            count("requests", "Requests"),
            count("finished", "Finished"),
        ),
        rows=[
            (
                tenant.tenant,
                each.label,
                tenant.kept,
                tenant.promised_ratio,
                tenant.ttft_attainment_ratio,
                tenant.ttft_p99_ms,
                tenant.tbt_attainment_ratio,
                tenant.tbt_p99_ms,
                tenant.needed_ttft_fixed_ms,
                tenant.requests,
                tenant.finished,
            )
            for name in sorted({tenant.tenant for each in one.outcomes for tenant in each.tenants})
            for each in one.outcomes
            for tenant in each.tenants
            if tenant.tenant == name
        ],
        empty="There is no outcome yet." if one.reason is None else "It came to none.",
    )
