"""Targets over REST, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import Force, IfMatch, expected_version, tag
from pdmuxd.controlplane.api.outlooks import OutlookOut
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.database.transactions import check_expected
from pdmuxd.controlplane.milliseconds import from_ms, to_ms
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.outlook.slo_preview import Preview, Previews
from pdmuxd.controlplane.services.control_plane import HISTORY_LIMIT, ControlPlane
from pdmuxd.controlplane.tenants.slo_revisions import SloRevision
from pdmuxd.controlplane.tenants.tenant_fields import in_words
from pdmuxd.engine.core import slo as limits
from pdmuxd.engine.core.errors import StaleVersionError
from pdmuxd.engine.core.slo import Slo

HISTORY_MAX = 1000
_ATTEMPTS = 5
"""Edits of others that may come between reading the targets and changing some of them."""
TBT_RULE = (
    "Decode is one batch on one partition, so the strictest tenant with requests in decode bounds the steps "
    "of all. Where the batch is too large for that, requests with twice its target and more sit steps out."
)
SLO_EXAMPLE: JsonDict = {
    "ttft_fixed_ms": 500,
    "ttft_per_1k_new_tokens_ms": 800,
    "tbt_ms": 40,
    "attainment_ratio": 0.99,
}
SLO_OUT_EXAMPLE: JsonDict = {
    **SLO_EXAMPLE,
    "e2e_ms": 20_000,
    "version": 3,
    "settings_version": 17,
    "in_force": True,
    "created_at": "2026-01-31T12:00:00Z",
}


def _bounds_ms(range_s: tuple[float, float]) -> tuple[float, float]:
    return to_ms(range_s[0]), to_ms(range_s[1])


def _number(bounds: tuple[float, float], description: str, **options: Any) -> Any:  # noqa: ANN401 - as Field
    low, high = bounds
    return Field(strict=True, ge=low, le=high, allow_inf_nan=False, description=description, **options)


TTFT_FIXED_MS = _bounds_ms(limits.TTFT_FIXED_RANGE_S)
TTFT_PER_1K_MS = _bounds_ms(limits.TTFT_PER_1K_RANGE_S)
TBT_MS = _bounds_ms(limits.TBT_RANGE_S)
E2E_MS = _bounds_ms(limits.E2E_RANGE_S)
E2E_RULE = (
    "From a request's arrival to its last token; of requests with the header `x-pdmuxd-session-id`, from the "
    "arrival of the session's first. Null: whole answers have no target."
)


class SloIn(Body):
    """A tenant's targets, all of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [SLO_EXAMPLE]})
    allowed: ClassVar[Mapping[str, str]] = {
        "ttft_fixed_ms": in_words(TTFT_FIXED_MS),
        "ttft_per_1k_new_tokens_ms": in_words(TTFT_PER_1K_MS),
        "tbt_ms": in_words(TBT_MS),
        "attainment_ratio": in_words(limits.ATTAINMENT_RANGE),
        "e2e_ms": f"null, or {in_words(E2E_MS)}",
    }

    ttft_fixed_ms: float = _number(
        TTFT_FIXED_MS, "The part of the time to first token that every prompt is given."
    )
    ttft_per_1k_new_tokens_ms: float = _number(
        TTFT_PER_1K_MS, "Added for each 1,000 prompt tokens that are not in the prefix cache."
    )
    tbt_ms: float = _number(TBT_MS, f"Holds for each gap between two tokens, not for their mean. {TBT_RULE}")
    attainment_ratio: float = _number(
        limits.ATTAINMENT_RANGE, "The share of requests, and of gaps, that must meet their target."
    )
    e2e_ms: float | None = _number(E2E_MS, E2E_RULE, default=None)

    def to_core(self) -> Slo:
        return Slo(
            ttft_fixed_s=from_ms(self.ttft_fixed_ms),
            ttft_per_1k_new_tokens_s=from_ms(self.ttft_per_1k_new_tokens_ms),
            tbt_s=from_ms(self.tbt_ms),
            attainment_ratio=self.attainment_ratio,
            e2e_s=None if self.e2e_ms is None else from_ms(self.e2e_ms),
        )


_STAYS = "As in `PUT`; null or absent: it stays."


class SloPatch(Body):
    """The targets that are to change; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tbt_ms": 30}]})
    allowed: ClassVar[Mapping[str, str]] = SloIn.allowed

    ttft_fixed_ms: float | None = _number(TTFT_FIXED_MS, _STAYS, default=None)
    ttft_per_1k_new_tokens_ms: float | None = _number(TTFT_PER_1K_MS, _STAYS, default=None)
    tbt_ms: float | None = _number(TBT_MS, _STAYS, default=None)
    attainment_ratio: float | None = _number(limits.ATTAINMENT_RANGE, _STAYS, default=None)
    e2e_ms: float | None = _number(E2E_MS, f"{_STAYS} `PUT` takes it away.", default=None)

    def applied_to(self, slo: Slo) -> Slo:
        """The targets with the change in them. What is null stays too."""
        times = {
            "ttft_fixed_s": self.ttft_fixed_ms,
            "ttft_per_1k_new_tokens_s": self.ttft_per_1k_new_tokens_ms,
            "tbt_s": self.tbt_ms,
            "e2e_s": self.e2e_ms,
        }
        given = {name: from_ms(value) for name, value in times.items() if value is not None}
        if self.attainment_ratio is not None:
            given["attainment_ratio"] = self.attainment_ratio
        return replace(slo, **given)


class SloOut(BaseModel):
    """One revision of a tenant's targets."""

    model_config = ConfigDict(json_schema_extra={"examples": [SLO_OUT_EXAMPLE]})

    ttft_fixed_ms: float
    ttft_per_1k_new_tokens_ms: float
    tbt_ms: float = Field(description=TBT_RULE)
    attainment_ratio: float
    e2e_ms: float | None = Field(description=E2E_RULE)
    version: int = Field(description="This tenant's own count of edits; also the ETag.")
    settings_version: int = Field(description="The global version that this edit was given.")
    in_force: bool = Field(description="The running engine has confirmed that it works with these targets.")
    created_at: datetime

    @classmethod
    def of(cls, revision: SloRevision, *, in_force: bool) -> Self:
        slo = revision.slo
        return cls(
            ttft_fixed_ms=to_ms(slo.ttft_fixed_s),
            ttft_per_1k_new_tokens_ms=to_ms(slo.ttft_per_1k_new_tokens_s),
            tbt_ms=to_ms(slo.tbt_s),
            attainment_ratio=slo.attainment_ratio,
            e2e_ms=None if slo.e2e_s is None else to_ms(slo.e2e_s),
            version=revision.version,
            settings_version=revision.settings_version,
            in_force=in_force,
            created_at=revision.created_at,
        )


class SloSetOut(SloOut):
    """The new revision, with what was predicted of it."""

    outlook: OutlookOut | None = Field(description="Null where no daemon runs that could predict.")


def has_reached(revision: SloRevision, status: EngineStatus) -> bool:
    """Whether the engine runs and has confirmed settings that hold this revision or a later one."""
    return status.state != "down" and status.acked_version >= revision.settings_version


def edit_slo(
    control_plane: ControlPlane,
    previews: Previews,
    tenant: str,
    slo: Slo,
    *,
    expected_version: int | None,
    is_forced: bool,
) -> tuple[SloRevision, Preview]:
    """Set targets, unless they are predicted to be infeasible and are not forced.

    Raises: NotFoundError, StaleVersionError, InfeasibleTargetError.
    """
    before = control_plane.get_slo(tenant)
    check_expected(expected_version, before.version, f"the SLO of {tenant}")
    predicted = previews.of_edit(tenant, slo, before.slo)
    if not is_forced:
        predicted.require_feasible()
    return control_plane.set_slo(tenant, slo, expected_version=expected_version), predicted


def slo_routes(
    control_plane: ControlPlane,
    engine_status: Callable[[], EngineStatus],
    previews: Previews,
) -> APIRouter:
    """The routes under `/tenants/{name}/slo`."""
    router = admin_router(prefix="/tenants/{name}/slo", tags=["SLOs"])

    def answer(revision: SloRevision, response: Response) -> SloOut:
        tag(response, revision.version)
        return SloOut.of(revision, in_force=has_reached(revision, engine_status()))

    @router.get("", responses=documented(404))
    def get_slo(name: str, response: Response) -> SloOut:
        """Show the targets that hold, and whether the engine already works with them."""
        return answer(control_plane.get_slo(name), response)

    @router.put("", responses=documented(404, 409, 412))
    def set_slo(
        name: str,
        body: SloIn,
        response: Response,
        force: Force = False,
        if_match: IfMatch = None,
    ) -> SloSetOut:
        """Set all targets. They reach the engine within a second, without a restart.

        A stricter target that the policy in force is predicted to miss at the load of the last minutes is
        refused with 409 and the lowest that is feasible, unless it is forced.
        """
        revision, predicted = edit_slo(
            control_plane,
            previews,
            name,
            body.to_core(),
            expected_version=expected_version(if_match),
            is_forced=force,
        )
        told = None if predicted.policy is None else OutlookOut.of(predicted)
        return SloSetOut(**answer(revision, response).model_dump(), outlook=told)

    @router.patch("", responses=documented(404, 409, 412))
    def change_slo(
        name: str,
        body: SloPatch,
        response: Response,
        force: Force = False,
        if_match: IfMatch = None,
    ) -> SloSetOut:
        """Set the targets that are given; the others stay, and so do all if none would change."""
        expected = expected_version(if_match)
        for attempt in range(_ATTEMPTS):
            before = control_plane.get_slo(name)
            check_expected(expected, before.version, f"the SLO of {name}")
            wanted = body.applied_to(before.slo)
            if wanted == before.slo:
                return SloSetOut(**answer(before, response).model_dump(), outlook=None)
            try:
                revision, predicted = edit_slo(
                    control_plane,
                    previews,
                    name,
                    wanted,
                    expected_version=before.version,
                    is_forced=force,
                )
                break
            except StaleVersionError:
                if expected is not None or attempt == _ATTEMPTS - 1:
                    raise
        told = None if predicted.policy is None else OutlookOut.of(predicted)
        return SloSetOut(**answer(revision, response).model_dump(), outlook=told)

    @router.post("/preview", responses=documented(404))
    def preview_slo(name: str, body: SloIn) -> OutlookOut:
        """Say what these targets would give to all tenants at the load of the last minutes. No change."""
        return OutlookOut.of(previews.of(name, body.to_core(), control_plane.get_slo(name).slo))

    @router.get("/history", responses=documented(404))
    def list_slo_history(
        name: str, limit: Annotated[int, Query(ge=1, le=HISTORY_MAX)] = HISTORY_LIMIT
    ) -> list[SloOut]:
        """List the newest revisions, newest first; at most one of them is in force."""
        revisions = control_plane.list_slo_history(name, limit)
        status = engine_status()
        working = next((one for one in revisions if has_reached(one, status)), None)
        return [SloOut.of(one, in_force=one is working) for one in revisions]

    return router
