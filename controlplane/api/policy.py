"""The policy in force, the splits that it chooses among, and its shadow, over REST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.node.scheduling import (
    HISTORY_LIMIT,
    MOST_SPLITS,
    SPEC_MAX,
    Scheduling,
    SchedulingRevision,
)
from pdmuxd.controlplane.outlook.what_if import Predictors
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.link.messages import ShadowCounts

HISTORY_MAX = 1000
_MOST_SMS = 1024
_VERSION_MAX = 2**31 - 1
_SPEC_ALLOWED = f"null, or a policy's specification of at most {SPEC_MAX} characters (GET /policies)"
_SPLITS = f"The splits that the policy chooses among, 1 to {MOST_SPLITS}. Null or absent: the engine's own."

WaitsFor = Literal["engine", "next_start"]


class SplitIn(Body):
    """One split of the device."""

    allowed: ClassVar[Mapping[str, str]] = {
        "prefill_sms": f"1 to {_MOST_SMS}",
        "decode_sms": f"1 to {_MOST_SMS}",
    }

    prefill_sms: int = Field(strict=True, ge=1, le=_MOST_SMS, examples=[96])
    decode_sms: int = Field(strict=True, ge=1, le=_MOST_SMS, examples=[36])


class PolicyIn(Body):
    """All of it; what is null or absent is as the settings, or the engine, have it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"policy": "muxwise", "shadow": "auto"}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "policy": _SPEC_ALLOWED,
        "shadow": _SPEC_ALLOWED,
        "partitions": f"null, or 1 to {MOST_SPLITS} splits, 1 to {_MOST_SMS} SMs on each side",
    }

    policy: str | None = Field(
        None, strict=True, min_length=1, max_length=SPEC_MAX, description="Null or absent: engine.policy."
    )
    partitions: list[SplitIn] | None = Field(None, min_length=1, max_length=MOST_SPLITS, description=_SPLITS)
    shadow: str | None = Field(
        None,
        strict=True,
        min_length=1,
        max_length=SPEC_MAX,
        description="A policy that decides on the same observations without acting. Null or absent: none.",
    )

    def to_scheduling(self) -> Scheduling:
        pairs = self.partitions
        return Scheduling(
            policy=self.policy,
            partitions=None if pairs is None else tuple((one.prefill_sms, one.decode_sms) for one in pairs),
            shadow=self.shadow,
        )


class RollbackIn(Body):
    """What to go back to."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}]})
    allowed: ClassVar[Mapping[str, str]] = {"version": "null, or 0 to 2147483647"}

    version: int | None = Field(
        None,
        strict=True,
        ge=0,
        le=_VERSION_MAX,
        description="Null or absent: the version before. 0: what the settings have.",
    )


class PolicySplitOut(BaseModel):
    """One split of the device."""

    prefill_sms: int = Field(examples=[96])
    decode_sms: int = Field(examples=[36])


class PolicyRevisionOut(BaseModel):
    """One edit of the policy; version 0 is what the settings have."""

    version: int = Field(examples=[3], description="Counts the edits; also the ETag.")
    policy: str | None = Field(examples=["muxwise"], description="Null: engine.policy.")
    partitions: list[PolicySplitOut] | None = Field(description=_SPLITS)
    shadow: str | None
    settings_version: int
    created_at: datetime | None

    @classmethod
    def of(cls, revision: SchedulingRevision) -> Self:
        scheduling = revision.scheduling
        pairs = scheduling.partitions
        return cls(
            version=revision.version,
            policy=scheduling.policy,
            partitions=None
            if pairs is None
            else [PolicySplitOut(prefill_sms=prefill, decode_sms=decode) for prefill, decode in pairs],
            shadow=scheduling.shadow,
            settings_version=revision.settings_version,
            created_at=revision.created_at,
        )


class ShadowOut(BaseModel):
    """How the shadow's decisions differ, since it was set: where a prefill begins, 50 times a second at most.

    Each decision counts once, by the first thing that differs.
    """

    policy: str = Field(examples=["auto"])
    decisions: int
    same_ratio: float | None = Field(description="Null before the first decision; so are the other ratios.")
    other_mode_ratio: float | None = Field(description="One splits and the other fuses, or one waits.")
    other_split_ratio: float | None
    other_requests_ratio: float | None = Field(description="Other waiting requests, or in another order.")
    late_ratio: float | None = Field(
        description="Decisions in force that miss the TBT target by their own prediction."
    )
    shadow_late_ratio: float | None
    prefill_sms_mean: float | None = Field(description="Given to prefill; fused steps count as all SMs.")
    shadow_prefill_sms_mean: float | None

    @classmethod
    def of(cls, counts: ShadowCounts) -> Self:
        """Divide by the decisions."""

        def share(count: int) -> float | None:
            return round(count / counts.decisions, 6) if counts.decisions else None

        return cls(
            policy=counts.policy,
            decisions=counts.decisions,
            same_ratio=share(counts.same),
            other_mode_ratio=share(counts.other_mode),
            other_split_ratio=share(counts.other_split),
            other_requests_ratio=share(counts.other_requests),
            late_ratio=share(counts.late),
            shadow_late_ratio=share(counts.shadow_late),
            prefill_sms_mean=share(counts.prefill_sms),
            shadow_prefill_sms_mean=share(counts.shadow_prefill_sms),
        )


class PolicyStateOut(PolicyRevisionOut):
    """The newest edit, and how far it has come."""

    running: str | None = Field(
        description="What decides in the engine now; null before its first heartbeat."
    )
    in_force: bool = Field(
        description="The running engine has taken it. A prefill under way is finished by the policy before."
    )
    waits_for: WaitsFor | None = Field(
        description="`engine`: it has not confirmed yet, or there is none. `next_start`: it goes on "
        "with what it had, and is started with this next time."
    )
    why: str | None = Field(description="What the engine said to it, where it waits for the next start.")
    shadow_report: ShadowOut | None

    @classmethod
    def with_status(cls, revision: SchedulingRevision, status: EngineStatus) -> Self:
        """The answer with the policy as the engine has it."""
        confirmed = status.state != "down" and status.acked_version >= revision.settings_version
        waits_for: WaitsFor | None = None
        if status.policy_difference is not None:
            waits_for = "next_start"
        elif not confirmed:
            waits_for = "engine"
        counts = status.stats.shadow if status.stats is not None else None
        return cls(
            **PolicyRevisionOut.of(revision).model_dump(),
            running=status.stats.policy if status.stats is not None else None,
            in_force=waits_for is None,
            waits_for=waits_for,
            why=status.policy_difference,
            shadow_report=None if counts is None else ShadowOut.of(counts),
        )


def policy_routes(
    control_plane: ControlPlane, engine_status: Callable[[], EngineStatus], predictors: Predictors
) -> APIRouter:
    """The routes under `/policy`."""
    router = admin_router(prefix="/policy", tags=["policy"])
    scheduling = control_plane.scheduling

    def answer(revision: SchedulingRevision, response: Response) -> PolicyStateOut:
        tag(response, revision.version)
        return PolicyStateOut.with_status(revision, engine_status())

    def context() -> PolicyContext | None:
        predicting = predictors()
        return None if predicting is None else predicting.context

    @router.get("", responses=documented())
    def get_policy(response: Response) -> PolicyStateOut:
        """Show what was set, what of it is in force, and how a shadow's decisions differ."""
        return answer(scheduling.current(), response)

    @router.put("", responses=documented(412))
    def set_policy(body: PolicyIn, response: Response, if_match: IfMatch = None) -> PolicyStateOut:
        """Set the policy, its splits and its shadow; in force at the next safe point, without a restart.

        Splits that a real engine has no streams and graphs for are in force when it is started next.
        """
        wanted, expected = body.to_scheduling(), expected_version(if_match)
        return answer(scheduling.set(wanted, context(), expected_version=expected), response)

    @router.post("/rollback", responses=documented(404, 412))
    def roll_back_policy(
        response: Response, body: RollbackIn | None = None, if_match: IfMatch = None
    ) -> PolicyStateOut:
        """Set again what an earlier version was; that is a new version."""
        version = None if body is None else body.version
        revision = scheduling.roll_back(
            context(), version=version, expected_version=expected_version(if_match)
        )
        return answer(revision, response)

    @router.get("/history", responses=documented())
    def list_policy_history(
        limit: Annotated[int, Query(ge=1, le=HISTORY_MAX)] = HISTORY_LIMIT,
    ) -> list[PolicyRevisionOut]:
        """List the edits, newest first."""
        return [PolicyRevisionOut.of(one) for one in scheduling.history(limit)]

    return router
