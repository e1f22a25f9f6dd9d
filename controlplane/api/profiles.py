"""Profiles over REST: what is stored, which is in force, what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import APIRouter, Body, Query, Response
from pydantic import Field

from pdmuxd.controlplane.api.bodies import Body as JsonBody
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.profile_bodies import (
    ActiveOut,
    ChangeOut,
    DifferenceOut,
    LearnedOut,
    ProfileOut,
)
from pdmuxd.controlplane.profiles.service import CHANGES_LIMIT
from pdmuxd.controlplane.profiles.values import cell_of
from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.status import EngineStatus
from pdmuxd.engine.core.errors import InvalidValueError, ProfileError
from pdmuxd.engine.profiling.assessment import differences
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json, to_json

CHANGES_MAX = 1000
CELL_ALLOWED = "five numbers joined by -, such as 36-2-0-5-3"


class ActivateIn(JsonBody):
    """How to activate."""

    allowed: ClassVar[Mapping[str, str]] = {"force": "true or false"}
    force: bool = Field(
        False, strict=True, examples=[False], description="Also if it is inaccurate, or lacks SM counts."
    )


class FrozenIn(JsonBody):
    """Whether to learn."""

    allowed: ClassVar[Mapping[str, str]] = {"frozen": "true or false"}
    frozen: bool = Field(
        strict=True, examples=[True], description="Learn nothing while the profile is in force."
    )


def profile_routes(control_plane: ControlPlane, engine_status: Callable[[], EngineStatus]) -> APIRouter:
    """The routes under `/profiles`."""
    router = APIRouter(prefix="/profiles", tags=["profiles"])
    profiles = control_plane.profiles

    @router.get("", responses=documented())
    def list_profiles() -> list[ProfileOut]:
        """List all profiles, newest first."""
        return [ProfileOut.of(stored) for stored in profiles.newest_first()]

    @router.post("", status_code=201, responses=documented())
    def import_profile(document: Annotated[dict[str, Any], Body()], response: Response) -> ProfileOut:
        """Store an exported profile as a new version of its name. It is not in force yet."""
        stored = profiles.add(_decoded(document), origin="imported")
        response.headers["Location"] = f"/api/v1/profiles/{stored.profile_id}"
        return ProfileOut.of(stored)

    @router.get("/active", responses=documented())
    def get_active_profile() -> ActiveOut:
        """Show what the policies predict with."""
        return ActiveOut.of(profiles.active(), engine_status())

    @router.post("/rollback", responses=documented(404, 409))
    def roll_back() -> ActiveOut:
        """Put in force what was before the newest activation. It reaches the engine within a second."""
        return ActiveOut.of(profiles.roll_back(engine_status().hello), engine_status())

    @router.post("/deactivate", responses=documented())
    def deactivate() -> ActiveOut:
        """Let the engine predict with what it has of its own."""
        profiles.deactivate()
        return ActiveOut.of(None, engine_status())

    @router.get("/{profile_id}", responses=documented(404))
    def get_profile(profile_id: int) -> ProfileOut:
        """Show one profile."""
        return ProfileOut.of(profiles.get(profile_id))

    @router.get("/{profile_id}/document", responses=documented(404))
    def export_profile(profile_id: int) -> dict[str, Any]:
        """Export a profile with its samples, as it was measured."""
        document: dict[str, Any] = msgspec.json.decode(to_json(profiles.whole(profile_id)))
        return document

    @router.get("/{profile_id}/diff/{other_id}", responses=documented(404))
    def diff_profiles(profile_id: int, other_id: int) -> list[DifferenceOut]:
        """List what differs from one profile to another."""
        before, after = profiles.get(profile_id).profile, profiles.get(other_id).profile
        return [DifferenceOut.model_validate(one) for one in differences(before, after)]

    @router.post("/{profile_id}/activate", responses=documented(404, 409))
    def activate(profile_id: int, body: ActivateIn) -> ActiveOut:
        """Put a profile in force. It reaches the engine within a second, without a restart."""
        stored = profiles.activate(profile_id, engine_status().hello, force=body.force)
        return ActiveOut.of(stored, engine_status())

    @router.put("/{profile_id}/frozen", responses=documented(404))
    def set_frozen(profile_id: int, body: FrozenIn) -> ProfileOut:
        """Learn nothing any more while the profile is in force, or learn again."""
        return ProfileOut.of(profiles.set_frozen(profile_id, body.frozen))

    @router.get("/{profile_id}/learned", responses=documented(404))
    def get_learned(profile_id: int) -> LearnedOut:
        """Show what serving has taught beyond the profile."""
        return LearnedOut.of(profiles.learned(profile_id))

    @router.delete("/{profile_id}/learned", status_code=204, responses=documented(404))
    def reset_learned(profile_id: int) -> None:
        """Go back to the profile as it was measured."""
        profiles.get(profile_id)
        profiles.reset(profile_id)

    @router.delete("/{profile_id}/learned/{cell}", status_code=204, responses=documented(404))
    def reset_cell(profile_id: int, cell: str) -> None:
        """Go back to the measured bound of one guard cell."""
        found = cell_of(cell)
        if found is None:
            raise InvalidValueError("cell", f"cell is {cell[:40]!r}; allowed are {CELL_ALLOWED}")
        profiles.reset_cell(profile_id, found)

    @router.get("/{profile_id}/changes", responses=documented(404))
    def list_changes(
        profile_id: int, limit: Annotated[int, Query(ge=1, le=CHANGES_MAX)] = CHANGES_LIMIT
    ) -> list[ChangeOut]:
        """List what was learned and when, newest first, with the evidence."""
        return [ChangeOut.model_validate(one) for one in profiles.changes(profile_id, limit)]

    return router


def _decoded(document: dict[str, Any]) -> MeasuredProfile:
    try:
        return from_json(msgspec.json.encode(document), "the body")
    except ProfileError as error:
        raise InvalidValueError("body", str(error)) from error
