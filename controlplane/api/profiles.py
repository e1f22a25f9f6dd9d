"""Profiles over REST: what is stored, which is in force, what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from fastapi import APIRouter, Body, Query, Response
from fastapi import Path as PathParameter
from pydantic import Field, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from pdmuxd.controlplane.api.bodies import Body as JsonBody
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.profile_bodies import (
    ActiveOut,
    ChangeOut,
    ProfileDifferenceOut,
    ProfileLearnedOut,
    ProfileOut,
)
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.profiles.service import CHANGES_LIMIT
from pdmuxd.controlplane.profiles.values import cell_of
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import InvalidValueError, ProfileError
from pdmuxd.engine.profiling.assessment import differences
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json, to_json

CHANGES_MAX = 1000
ID_MAX = 2**31 - 1
"""What the database can count to."""
ProfileId = Annotated[int, PathParameter(ge=1, le=ID_MAX)]
CELL_ALLOWED = "five numbers joined by -, such as 36-2-0-5-3"
_CELL_SCHEMA: JsonSchemaValue = {"type": "string", "pattern": r"^[0-9]{1,4}(-[0-9]{1,4}){4}$"}
Cell = Annotated[Annotated[str, WithJsonSchema(_CELL_SCHEMA)], PathParameter(description=CELL_ALLOWED)]


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
    router = admin_router(prefix="/profiles", tags=["profiles"])
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
    def get_active_profile(response: Response) -> ActiveOut:
        """Show what the policies predict with."""
        tag(response, profiles.active_version())
        return ActiveOut.of(profiles.active(), engine_status())

    @router.post("/rollback", responses=documented(404, 409, 412))
    def roll_back_profile(if_match: IfMatch = None) -> ActiveOut:
        """Put in force what was before the newest activation. It reaches the engine within a second."""
        expected = expected_version(if_match)
        before = profiles.roll_back(engine_status().hello, expected_version=expected)
        return ActiveOut.of(before, engine_status())

    @router.post("/deactivate", responses=documented(412))
    def deactivate_profile(if_match: IfMatch = None) -> ActiveOut:
        """Let the engine predict with what it has of its own."""
        profiles.deactivate(expected_version=expected_version(if_match))
        return ActiveOut.of(None, engine_status())

    @router.get("/{profile_id}", responses=documented(404))
    def get_profile(profile_id: ProfileId, response: Response) -> ProfileOut:
        """Show one profile."""
        stored = profiles.get(profile_id)
        tag(response, stored.settings_version)
        return ProfileOut.of(stored)

    @router.get("/{profile_id}/document", responses=documented(404))
    def export_profile(profile_id: ProfileId) -> dict[str, Any]:
        """Export a profile with its samples, as it was measured."""
        document: dict[str, Any] = msgspec.json.decode(to_json(profiles.whole(profile_id)))
        return document

    @router.get("/{profile_id}/diff/{other_id}", responses=documented(404))
    def diff_profiles(profile_id: ProfileId, other_id: ProfileId) -> list[ProfileDifferenceOut]:
        """List what differs from one profile to another."""
        before, after = profiles.get(profile_id).profile, profiles.get(other_id).profile
        return [ProfileDifferenceOut.model_validate(one) for one in differences(before, after)]

    @router.post("/{profile_id}/activate", responses=documented(404, 409, 412))
    def activate_profile(profile_id: ProfileId, body: ActivateIn, if_match: IfMatch = None) -> ActiveOut:
        """Put a profile in force. It reaches the engine within a second, without a restart.

        `If-Match` is the ETag of the active profile.
        """
        stored = profiles.activate(
            profile_id,
            engine_status().hello,
            force=body.force,
            expected_version=expected_version(if_match),
        )
        return ActiveOut.of(stored, engine_status())

    @router.put("/{profile_id}/frozen", responses=documented(404, 412))
    def freeze_profile(
        profile_id: ProfileId, body: FrozenIn, response: Response, if_match: IfMatch = None
    ) -> ProfileOut:
        """Learn nothing any more while the profile is in force, or learn again."""
        expected = expected_version(if_match)
        stored = profiles.set_frozen(profile_id, body.frozen, expected_version=expected)
        tag(response, stored.settings_version)
        return ProfileOut.of(stored)

    @router.get("/{profile_id}/learned", responses=documented(404))
    def get_profile_learned(profile_id: ProfileId) -> ProfileLearnedOut:
        """Show what serving has taught beyond the profile."""
        return ProfileLearnedOut.of(profiles.learned(profile_id))

    @router.delete("/{profile_id}/learned", status_code=204, responses=documented(404, 412))
    def reset_profile_learned(profile_id: ProfileId, if_match: IfMatch = None) -> None:
        """Go back to the profile as it was measured."""
        profiles.reset(profile_id, expected_version=expected_version(if_match))

    @router.delete("/{profile_id}/learned/{cell}", status_code=204, responses=documented(404, 412))
    def reset_profile_cell(profile_id: ProfileId, cell: Cell, if_match: IfMatch = None) -> None:
        """Go back to the measured bound of one guard cell."""
        found = cell_of(cell)
        if found is None:
            raise InvalidValueError("cell", f"cell is {cell[:40]!r}; allowed are {CELL_ALLOWED}")
        profiles.reset_cell(profile_id, found, expected_version=expected_version(if_match))

    @router.get("/{profile_id}/changes", responses=documented(404))
    def list_profile_changes(
        profile_id: ProfileId, limit: Annotated[int, Query(ge=1, le=CHANGES_MAX)] = CHANGES_LIMIT
    ) -> list[ChangeOut]:
        """List what was learned and when, newest first, with the evidence."""
        return [ChangeOut.model_validate(one) for one in profiles.changes(profile_id, limit)]

    return router


def _decoded(document: dict[str, Any]) -> MeasuredProfile:
    try:
        encoded = msgspec.json.encode(document)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidValueError("body", f"the body has a text or a number that cannot be: {error}") from error
    try:
        return from_json(encoded, "the body")
    except ProfileError as error:
        raise InvalidValueError("body", str(error)) from error
