"""The policy in force, its shadow, its splits; and setting another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.effects import EffectOut, effects_of
from pdmuxd.controlplane.api.policy import PolicyRevisionOut, PolicySplitOut, PolicyStateOut, ShadowOut
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.node.scheduling import HISTORY_LIMIT, SPEC_MAX, Pairs, Scheduling
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.forms import acting_with, read_form, require_own_form, version_of
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import happened
from pdmuxd.controlplane.web.tables import Column, CsvName, Table, count, long, ms, rate, share, when
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.engine.core.errors import InvalidValueError, StaleVersionError
from pdmuxd.engine.core.policies.registry import known_policies

SPLITS_ALLOWED = "pairs such as 96|36, with commas between: SMs for prefill, then for decode"


def policy_routes(
    control_plane: ControlPlane,
    telemetry: Telemetry,
    history: History,
    predictors: Predictors,
) -> APIRouter:
    """`/ui/policy`, the form on it, and its history."""
    router, scheduling = page_router(), control_plane.scheduling

    @router.get("/policy")
    async def show_policy(
        request: Request, at: At = None, window: MaybeWindow = None, csv: CsvName = ""
    ) -> Response:
        shown = Shown.now_unless(at, window, time.time())
        # Effects belong to the event loop.
        effects = effects_of(await telemetry.effects.told())
        if shown.is_all:
            return await asyncio.to_thread(show, request, csv, effects)
        seen = await happened(history, shown, "policy", "engine")
        return await asyncio.to_thread(show_past, request, shown, csv, effects, seen)

    @router.post("/policy")
    async def take_form(request: Request) -> Response:
        sent = await read_form(request)
        require_own_form(request, sent, session_of(request))
        effects = effects_of(await telemetry.effects.told())
        return await asyncio.to_thread(take, request, sent, effects)

    def show_past(
        request: Request, shown: Shown, csv: str, effects: list[EffectOut], seen: Table
    ) -> Response:
        revisions = [PolicyRevisionOut.of(one) for one in scheduling.history(HISTORY_LIMIT)]
        start = instant(shown.minutes.start_s)
        before = [one for one in revisions if one.created_at is not None and one.created_at < shown.end]
        then = before[0] if before else None
        policy = "The settings' policy" if then is None or then.policy is None else then.policy
        if then is None and len(revisions) == HISTORY_LIMIT:
            policy = f"One that is not among the newest {HISTORY_LIMIT} revisions"
        return sheet(
            request,
            csv,
            title="Policy",
            heading=f"{policy} was to decide at the end of this time.",
            lines=(
                "What the shadow would have done is told of now alone, "
                "and what changes did since the daemon started.",
            ),
            shown=shown,
            tables=(
                _history([one for one in before if one.created_at is not None and start <= one.created_at]),
                _effects([one for one in effects if start <= one.at < shown.end]),
                seen,
            ),
        )

    def show(
        request: Request,
        csv: str,
        effects: list[EffectOut],
        typed: Mapping[str, str] | None = None,
        error: str | None = None,
        status: int = 200,
    ) -> Response:
        revision = scheduling.current()
        state = PolicyStateOut.with_status(revision, telemetry.status())
        history = [PolicyRevisionOut.of(one) for one in scheduling.history(HISTORY_LIMIT)]
        given = {
            "policy": state.policy or "",
            "shadow": state.shadow or "",
            "splits": _typed(state.partitions),
            "why": "",
        }
        return sheet(
            request,
            csv,
            "policy.html",
            status,
            title="Policy",
            heading=f"{state.running or state.policy or 'No policy'} decides.",
            lines=_lines(state),
            state="good" if state.in_force else "bad",
            shown=Shown.now_unless(None, None, time.time()),
            tables=(
                _shadow(state.shadow_report),
                _effects(effects),
                _history(history),
                _known(),
            ),
            version=state.version,
            typed=typed or given,
            error=error,
            spec_max=SPEC_MAX,
            may_edit=caller_of(request.scope).role == "admin",
        )

    def take(request: Request, sent: Mapping[str, str], effects: list[EffectOut]) -> Response:
        predicting = predictors()
        context = None if predicting is None else predicting.context
        typed = {name: sent.get(name, "").strip() for name in ("policy", "shadow", "splits", "why")}
        try:
            version = version_of(sent)
            with acting_with(request, sent):
                if sent.get("do") == "rollback":
                    scheduling.roll_back(context, version=None, expected_version=version)
                else:
                    scheduling.set(_scheduling(typed), context, expected_version=version)
        except StaleVersionError as error:
            said = f"{error}. It was set meanwhile: look at what holds now, and send yours again."
            return show(request, "", effects, typed, said, 412)
        except InvalidValueError as error:
            return show(request, "", effects, typed, str(error), 422)
        return RedirectResponse("/ui/policy", 303)

    return router


def _lines(state: PolicyStateOut) -> list[str]:
    lines = []
    if state.waits_for is not None:
        waits = "the engine" if state.waits_for == "engine" else "the engine's next start"
        lines.append(f"What was set waits for {waits}{': ' + state.why if state.why else ''}.")
    return lines


def _scheduling(typed: Mapping[str, str]) -> Scheduling:
    """What was typed. Raises: InvalidValueError naming the field."""
    for name in ("policy", "shadow"):
        if len(typed[name]) > SPEC_MAX:
            raise InvalidValueError(name, f"{name} has {len(typed[name])} characters; allowed are {SPEC_MAX}")
    return Scheduling(
        policy=typed["policy"] or None,
        shadow=typed["shadow"] or None,
        partitions=_pairs(typed["splits"]) if typed["splits"] else None,
    )


def _pairs(text: str) -> Pairs:
    found = []
    for part in text.split(","):
        sides = [side.strip() for side in part.split("|")]
        if len(sides) != 2 or not all(side.isascii() and side.isdigit() and len(side) < 5 for side in sides):
            raise InvalidValueError(
                "partitions", f"splits has {part.strip()[:20]!a}; allowed are {SPLITS_ALLOWED}"
            )
        found.append((int(sides[0]), int(sides[1])))
    return tuple(found)


def _typed(pairs: list[PolicySplitOut] | None) -> str:
    return ", ".join(f"{one.prefill_sms}|{one.decode_sms}" for one in pairs or ())


def _shadow(counts: ShadowOut | None) -> Table:
    return Table(
        name="shadow",
        title="The shadow beside it",
        note="where a prefill begins, 50 times a second at most",
        columns=(
            Column("policy", "Shadow"),
            count("decisions", "Decisions"),
            share("same_ratio", "Same"),
            share("other_mode_ratio", "Other mode"),
            share("other_split_ratio", "Other split"),
            share("other_requests_ratio", "Other requests"),
            share("late_ratio", "Late, in force"),
            share("shadow_late_ratio", "Late, shadow"),
            rate("prefill_sms_mean", "Prefill SMs, in force"),
            rate("shadow_prefill_sms_mean", "Prefill SMs, shadow"),
        ),
        rows=[] if counts is None else [tuple(counts.model_dump().values())],
        empty="No policy shadows it.",
    )


def _effects(effects: list[EffectOut]) -> Table:
    rows = []
    for one in effects:
        after = {} if one.after is None else {each.tenant: each for each in one.after.tenants}
        replayed = {} if one.replay is None else {each.tenant: each for each in one.replay.tenants}
        for before in one.before.tenants:
            then, alone = after.get(before.tenant), replayed.get(before.tenant)
            rows.append(
                (
                    one.at,
                    one.text,
                    one.state.replace("_", " "),
                    before.tenant,
                    _per_s(before.requests, one.before.length_ms),
                    then and one.after and _per_s(then.requests, one.after.length_ms),
                    before.ttft_attainment_ratio,
                    then and then.ttft_attainment_ratio,
                    before.ttft_p99_ms,
                    then and then.ttft_p99_ms,
                    before.tbt_attainment_ratio,
                    then and then.tbt_attainment_ratio,
                    before.tbt_p99_ms,
                    then and then.tbt_p99_ms,
                    alone and alone.ttft_before_ratio,
                    alone and alone.ttft_after_ratio,
                    alone and alone.tbt_before_ratio,
                    alone and alone.tbt_after_ratio,
                )
            )
    return Table(
        name="effects",
        title="What changes did",
        note="the minute before, and up to five since; replayed: the requests since, without and with it",
        columns=(
            when("at", "When"),
            long("text", "Change"),
            Column("state", "State"),
            Column("tenant", "Tenant"),
            rate("requests_per_s_before", "Requests per s, before"),
            rate("requests_per_s_after", "after"),
            share("ttft_attainment_ratio_before", "TTFT in time, before"),
            share("ttft_attainment_ratio_after", "after"),
            ms("ttft_p99_ms_before", "TTFT p99, ms, before"),
            ms("ttft_p99_ms_after", "after"),
            share("tbt_attainment_ratio_before", "TBT in time, before"),
            share("tbt_attainment_ratio_after", "after"),
            ms("tbt_p99_ms_before", "TBT p99, ms, before"),
            ms("tbt_p99_ms_after", "after"),
            share("replayed_ttft_ratio_before", "TTFT replayed, without"),
            share("replayed_ttft_ratio_after", "with"),
            share("replayed_tbt_ratio_before", "TBT replayed, without"),
            share("replayed_tbt_ratio_after", "with"),
        ),
        rows=rows,
        empty="Nothing was changed under traffic that the daemon knows of since it started.",
    )


def _per_s(count_of: int, length_ms: float) -> float | None:
    return 1000.0 * count_of / length_ms if length_ms else None


def _history(history: list[PolicyRevisionOut]) -> Table:
    return Table(
        name="history",
        title="How it was set",
        note="newest first",
        columns=(
            count("version", "Version"),
            when("created_at", "When"),
            Column("policy", "Policy", lambda policy: policy or "as the settings have it"),
            Column("partitions", "Splits", lambda pairs: pairs or "the engine's own", "long"),
            Column("shadow", "Shadow", lambda shadow: shadow or "none"),
        ),
        rows=[
            (one.version, one.created_at, one.policy, _typed(one.partitions) or None, one.shadow)
            for one in history
        ],
        empty="It was not set: the settings' policy decides, or what was set before.",
    )


def _known() -> Table:
    return Table(
        name="policies",
        title="Policies that there are",
        columns=(
            Column("syntax", "Write it as"),
            long("summary", "What it does"),
            Column("example", "Such as"),
        ),
        rows=[(one.syntax, one.summary, one.example) for one in known_policies()],
        empty="None.",
    )
