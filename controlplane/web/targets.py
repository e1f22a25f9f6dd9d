"""Targets edited on a page: typed, forecast, confirmed, and set only if nobody else has meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from pdmuxd.controlplane.api.outlooks import OutlookOut
from pdmuxd.controlplane.api.slos import SloIn, SloOut, edit_slo
from pdmuxd.controlplane.outlook.slo_preview import Previews
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.web.forms import (
    acting_with,
    number_of,
    read_form,
    refused,
    require_own_form,
    version_of,
)
from pdmuxd.controlplane.web.logins import session_of
from pdmuxd.controlplane.web.pages import page, page_router
from pdmuxd.engine.core.errors import InfeasibleTargetError, InvalidValueError, StaleVersionError

FIELDS = {
    "ttft_fixed_ms": ("TTFT, fixed part", "ms"),
    "ttft_per_1k_new_tokens_ms": ("TTFT, for each 1,000 prompt tokens that are not cached", "ms"),
    "tbt_ms": ("TBT, for each gap between two tokens", "ms"),
    "attainment_ratio": ("Share that must be in time", "0.5 to 0.9999"),
    "e2e_ms": ("Whole answer, to its last token; empty for no target", "ms"),
}
MAY_BE_EMPTY = ("e2e_ms",)


def target_routes(control_plane: ControlPlane, previews: Previews) -> APIRouter:
    """`/ui/tenants/{name}/targets`: the form, its forecast, and the edit."""
    router = page_router()

    def form(request: Request, name: str, values: Mapping[str, object], status: int = 200) -> Response:
        given = {"error": None, "outlook": None, "why": "", "name": name, "fields": FIELDS, **values}
        given["may_be_empty"] = MAY_BE_EMPTY
        return page(request, "targets.html", status, title=f"Targets of {name}", **given)

    @router.get("/tenants/{name}/targets")
    def show_form(request: Request, name: str) -> Response:
        now = SloOut.of(control_plane.get_slo(name), in_force=False)
        typed = _shown(now)
        return form(request, name, {"typed": typed, "version": str(now.version), "now": typed})

    @router.post("/tenants/{name}/targets")
    async def take_form(request: Request, name: str) -> Response:
        sent = await read_form(request)
        require_own_form(request, sent, session_of(request))
        return await asyncio.to_thread(take, request, name, sent)

    def take(request: Request, name: str, sent: Mapping[str, str]) -> Response:
        now = SloOut.of(control_plane.get_slo(name), in_force=False)
        shown: dict[str, object] = {
            "typed": {field: sent.get(field, "").strip() for field in FIELDS},
            "version": sent.get("version", ""),
            "why": sent.get("why", "").strip(),
            "now": _shown(now),
        }
        try:
            slo, acted = _slo(sent).to_core(), acting_with(request, sent)
            if sent.get("do") != "set":
                outlook = OutlookOut.of(previews.of(name, slo, control_plane.get_slo(name).slo))
                return form(request, name, shown | {"outlook": outlook})
            with acted:
                edit_slo(
                    control_plane,
                    previews,
                    name,
                    slo,
                    expected_version=version_of(sent),
                    is_forced=sent.get("force") == "yes",
                )
        except StaleVersionError as error:
            said = f"{error}. They were set meanwhile: look at what holds now, and send yours again."
            return form(request, name, shown | {"error": said, "version": str(now.version)}, 412)
        except InfeasibleTargetError as error:
            return form(request, name, shown | {"error": str(error)}, 409)
        except InvalidValueError as error:
            return form(request, name, shown | {"error": str(error)}, 422)
        return RedirectResponse(f"/ui/tenants/{name}#targets", 303)

    return router


def _shown(slo: SloOut) -> dict[str, str]:
    values = {field: getattr(slo, field) for field in FIELDS}
    return {field: "" if value is None else f"{value:.15g}" for field, value in values.items()}


def _slo(sent: Mapping[str, str]) -> SloIn:
    """The targets that were typed. Raises: InvalidValueError naming the field."""
    try:
        typed = {field: sent.get(field, "").strip() for field in FIELDS}
        given = {name: number_of(text) for name, text in typed.items() if text or name not in MAY_BE_EMPTY}
        return SloIn.model_validate(given)
    except ValidationError as error:
        raise refused(error, "targets") from None
