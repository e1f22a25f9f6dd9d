"""Profiles: which predicts, how far each is off, what serving has taught; and putting another in force."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import RedirectResponse, Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.profile_bodies import ActiveOut, ProfileLearnedOut, ProfileOut
from pdmuxd.controlplane.api.profiles import ProfileId
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.profiles.service import CHANGES_LIMIT
from pdmuxd.controlplane.profiles.values import Activation, RecordedChange
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.forms import acting_with, read_form, require_own_form, version_of
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.pages import page_router, sheet
from pdmuxd.controlplane.web.past import CHANGED, LEARNED, cells_of, happened, learned
from pdmuxd.controlplane.web.tables import (
    Column,
    CsvName,
    Link,
    Table,
    count,
    ratio,
    share,
    when,
    yes_no,
)
from pdmuxd.controlplane.web.times import At, MaybeWindow, Shown
from pdmuxd.engine.core.errors import InvalidValueError

DoName = Annotated[str, PathParameter(max_length=20)]


def profile_routes(control_plane: ControlPlane, telemetry: Telemetry, history: History) -> APIRouter:
    """`/ui/profiles`, `/ui/profiles/{profile_id}`, and what their buttons do."""
    router, profiles = page_router(), control_plane.profiles

    @router.get("/profiles")
    async def list_profiles(
        request: Request, at: At = None, window: MaybeWindow = None, csv: CsvName = ""
    ) -> Response:
        shown = Shown.now_unless(at, window, time.time())
        if shown.is_all:
            return await asyncio.to_thread(show_now, request, shown, csv)
        seen = await happened(history, shown, "profile")
        return await asyncio.to_thread(show_past, request, shown, csv, seen)

    def show_past(request: Request, shown: Shown, csv: str, seen: Table) -> Response:
        start, activated = instant(shown.minutes.start_s), profiles.activations()
        then = next((one for one in activated if one.created_at < shown.end), None)
        # What was undone is no more among them, and the record of profiles that are gone went with them.
        then_id = None if then is None else then.profile_id
        which = "What the engine has of its own" if then_id is None else f"Profile {then_id}"
        return sheet(
            request,
            csv,
            title="Profiles",
            heading=f"{which} was to predict at the end of this time.",
            lines=("An activation that was gone back on is only in the audit.",),
            shown=shown,
            tables=(
                _activations([one for one in activated if start <= one.created_at < shown.end]),
                learned(profiles.changes_between(start, shown.end)),
                seen,
            ),
        )

    def show_now(request: Request, shown: Shown, csv: str) -> Response:
        active = ActiveOut.of(profiles.active(), telemetry.status())
        is_so = "and so it does" if active.in_force else "which it does not do yet"
        wanted = "what it has of its own" if active.profile is None else f"profile {active.profile.id}"
        return sheet(
            request,
            csv,
            "profiles.html",
            title="Profiles",
            heading=f"The engine predicts with {active.predicts_with}.",
            lines=(f"It is to predict with {wanted}, {is_so}.", active.difference or ""),
            state="good" if active.in_force else "bad",
            shown=shown,
            tables=(_stored([ProfileOut.of(one) for one in profiles.newest_first()]),),
            version=profiles.active_version(),
            do=_allowed(request, ("rollback", "deactivate")),
        )

    @router.get("/profiles/{profile_id}")
    def show_profile(request: Request, profile_id: ProfileId, csv: CsvName = "") -> Response:
        one = ProfileOut.of(profiles.get(profile_id))
        learned = ProfileLearnedOut.of(profiles.learned(profile_id))
        changes = profiles.changes(profile_id, CHANGES_LIMIT)
        return sheet(
            request,
            csv,
            "profiles.html",
            title=f"Profile {profile_id}",
            heading=f"{one.name}, version {one.version}, {'in force' if one.active else 'not in force'}",
            lines=(one.provenance, *one.doubts, *(f"Left out: {text}" for text in one.left_out)),
            state="good" if one.active else "quiet",
            tables=(_fits(one), _cells(learned), _corrections(learned), _changes(changes)),
            version=profiles.active_version(),
            do=() if one.active else _allowed(request, ("activate",)),
            profile_id=profile_id,
        )

    @router.post("/profiles")
    async def change_active(request: Request) -> Response:
        sent = await read_form(request)
        require_own_form(request, sent, session_of(request))
        return await asyncio.to_thread(change, request, sent)

    def change(request: Request, sent: dict[str, str]) -> Response:
        hello, version, wanted = telemetry.status().hello, version_of(sent), sent.get("do")
        with acting_with(request, sent):
            if wanted == "activate":
                profiles.activate(
                    _id(sent), hello, force=sent.get("force") == "yes", expected_version=version
                )
            elif wanted == "rollback":
                profiles.roll_back(hello, expected_version=version)
            elif wanted == "deactivate":
                profiles.deactivate(expected_version=version)
            else:
                allowed = "activate, rollback, deactivate"
                raise InvalidValueError("do", f"do is {(wanted or '')[:20]!a}; allowed are {allowed}")
        return RedirectResponse("/ui/profiles", 303)

    return router


def _allowed(request: Request, actions: tuple[str, ...]) -> tuple[str, ...]:
    return actions if caller_of(request.scope).role == "admin" else ()


def _id(sent: dict[str, str]) -> int:
    text = sent.get("profile_id", "")
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise InvalidValueError("profile_id", f"profile_id is {text[:20]!a}; allowed is a profile's number")
    return int(text)


def _activations(found: list[Activation]) -> Table:
    return Table(
        name="activations",
        title="Put in force",
        note="newest first",
        columns=(
            when("created_at", "When"),
            Column("profile_id", "Profile", unknown="the engine's own"),
            yes_no("forced", "Insisted on"),
            count("settings_version", "Settings version"),
        ),
        rows=[
            (
                one.created_at,
                one.profile_id and Link(one.profile_id, f"/ui/profiles/{one.profile_id}"),
                *(one.forced, one.settings_version),
            )
            for one in found
        ],
        empty="None in this time.",
    )


def _stored(found: list[ProfileOut]) -> Table:
    return Table(
        name="profiles",
        title="Stored",
        note="newest first",
        columns=(
            Column("name", "Name"),
            count("id", "Id"),
            count("version", "Version"),
            yes_no("active", "In force"),
            yes_no("frozen", "Frozen"),
            Column("origin", "Origin"),
            Column("device", "Device"),
            Column("model", "Model"),
            count("samples", "Samples"),
            share("worst_p90_error_ratio", "Off by, worst p90"),
            when("created_at", "Stored"),
        ),
        rows=[
            (
                Link(one.name, f"/ui/profiles/{one.id}"),
                one.id,
                one.version,
                one.active,
                one.frozen,
                one.origin,
                one.device,
                one.model,
                one.samples,
                one.worst_p90_error_ratio,
                one.created_at,
            )
            for one in found
        ],
        empty="None is stored: pdmuxd profile run measures one.",
    )


def _fits(one: ProfileOut) -> Table:
    return Table(
        name="fits",
        title="How far predictions are off",
        note="on samples that they were not fitted to",
        columns=(
            Column("predictor", "Predictor"),
            Column("sms", "SMs", lambda sms: sms or "all", "n"),
            count("samples", "Samples"),
            count("outliers", "Outliers"),
            share("p50_error_ratio", "p50"),
            share("p90_error_ratio", "p90"),
            share("max_error_ratio", "At most"),
        ),
        rows=[tuple(fit.model_dump().values()) for fit in one.fits],
        empty="It has no fit.",
    )


def _cells(learned: ProfileLearnedOut) -> Table:
    return Table(
        name="learned",
        title="Bounds that serving has taught",
        note="the guard's cells: decode SMs, then steps of new and cached tokens, batch and context",
        columns=(Column("cell", "Cell"), ratio("ratio", "Ratio")),
        rows=[(cell.cell, cell.ratio) for cell in learned.cells],
        empty="None.",
    )


def _corrections(learned: ProfileLearnedOut) -> Table:
    return Table(
        name="corrections",
        title="How much slower work is than was fitted",
        columns=(Column("predictor", "Predictor"), count("sms", "SMs"), ratio("ratio", "Ratio")),
        rows=[(one.predictor, one.sms, one.ratio) for one in learned.corrections],
        empty="Nothing was corrected.",
    )


def _changes(changes: list[RecordedChange]) -> Table:
    return Table(
        name="changes",
        title=LEARNED,
        note="newest first",
        columns=(when("created_at", "When"), *CHANGED),
        rows=[(one.created_at, *cells_of(one)) for one in changes],
        empty="Nothing yet.",
    )
