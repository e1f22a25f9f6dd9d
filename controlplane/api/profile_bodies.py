"""What the routes of profiles answer. Times in milliseconds, errors and slowdowns as ratios."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.profiles.values import Learned, StoredProfile, cell_text
from pdmuxd.engine.profiling.gate import doubts


class FitOut(BaseModel):
    """How far a predictor is off on samples that it was not fitted to."""

    predictor: str = Field(examples=["decode"], description="`prefill`, `decode`, `fused` or `roofline`.")
    sms: int = Field(examples=[36], description="0 for all.")
    samples: int
    outliers: int
    p50_error_ratio: float
    p90_error_ratio: float
    max_error_ratio: float


class ProfileGuardOut(BaseModel):
    """The guard as measured."""

    pairs: int = Field(examples=[320])
    exceeded_ratio: float = Field(description="Share of held-out pairs that were slower than their bound.")
    overestimate_ratio: float = Field(description="Mean excess of the bound over held-out pairs.")
    default_ratio: float
    cells: int


class ProfileOut(BaseModel):
    """A stored profile."""

    id: int = Field(examples=[3])
    name: str = Field(examples=["h200-llama-8b"])
    version: int
    origin: str = Field(description="`measured`, `imported` or `shipped`.")
    active: bool
    frozen: bool = Field(description="Nothing is learned while it is in force.")
    created_at: datetime
    device: str
    gpus: int = Field(examples=[1], description="So many of the device held one copy of the model.")
    model: str
    provenance: str = Field(description="What was measured, where, when and with which versions.")
    total_sms: int
    samples: int
    took_ms: float
    worst_p90_error_ratio: float
    fits: list[FitOut]
    guard: ProfileGuardOut | None = Field(description="Null if too few pairs were measured.")
    left_out: list[str] = Field(description="What could not be fitted, and why.")
    doubts: list[str] = Field(
        description="Each predictor that is doubtful: what predicts instead, and what it may cost."
    )

    @classmethod
    def of(cls, stored: StoredProfile) -> Self:
        profile = stored.profile
        guard = profile.guard
        return cls(
            id=stored.profile_id,
            name=stored.name,
            version=stored.version,
            origin=stored.origin,
            active=stored.is_active,
            frozen=stored.frozen,
            created_at=stored.created_at,
            device=stored.device,
            gpus=profile.tensor_parallel.gpus,
            model=stored.model,
            provenance=profile.provenance_line,
            total_sms=profile.total_sms,
            samples=stored.samples,
            took_ms=round(profile.provenance.took_s * 1000.0, 3),
            worst_p90_error_ratio=stored.worst_p90,
            fits=[
                FitOut(
                    predictor=fit.predictor,
                    sms=fit.sms,
                    samples=fit.samples,
                    outliers=fit.outliers,
                    p50_error_ratio=fit.errors.p50,
                    p90_error_ratio=fit.errors.p90,
                    max_error_ratio=fit.errors.max,
                )
                for fit in profile.fits
            ],
            guard=None
            if guard is None
            else ProfileGuardOut(
                pairs=guard.pairs,
                exceeded_ratio=guard.exceeded_ratio,
                overestimate_ratio=guard.overestimate_ratio,
                default_ratio=profile.guard_default_ratio,
                cells=len(profile.guard_cells),
            ),
            left_out=list(profile.left_out),
            doubts=[one.text for one in doubts(profile)],
        )


class ActiveOut(BaseModel):
    """What the policies predict with."""

    profile: ProfileOut | None = Field(description="The active one; null while it is the engine's own.")
    in_force: bool = Field(description="The engine's last heartbeat said that it predicts with it.")
    predicts_with: str = Field(
        examples=["profile 3 (h200-llama-8b, version 2)"], description="What the engine really uses."
    )
    difference: str | None = Field(description="Why the active profile is not for this engine.")

    @classmethod
    def of(cls, stored: StoredProfile | None, status: EngineStatus) -> Self:
        used = status.stats.profile_id if status.stats is not None else None
        wanted = stored.profile_id if stored is not None else 0
        return cls(
            profile=None if stored is None else ProfileOut.of(stored),
            in_force=used == wanted,
            predicts_with=_predicts_with(stored, status, used),
            difference=status.profile_difference if stored is not None else None,
        )


def _predicts_with(stored: StoredProfile | None, status: EngineStatus, used: int | None) -> str:
    if status.hello is None:
        return "nothing: no engine runs"
    if used is None:
        return "not known yet: the engine has sent no heartbeat"
    if stored is not None and used == stored.profile_id:
        return f"profile {used} ({stored.name}, version {stored.version})"
    if used:
        return f"profile {used}"
    own = status.hello.profile or "roofline"
    return f"the engine's own: {own} ({status.hello.profile_provenance})"


class ProfileCellOut(BaseModel):
    """A guard cell whose bound was learned."""

    cell: str = Field(
        examples=["36-2-0-5-3"],
        description="Decode SMs, then the grid's indexes of new and reused prefill tokens, decode batch and "
        "decode tokens.",
    )
    ratio: float


class CorrectionOut(BaseModel):
    """How much slower than fitted work is."""

    predictor: str = Field(examples=["decode"])
    sms: int
    ratio: float


class ProfileLearnedOut(BaseModel):
    """What serving has taught beyond the profile."""

    cells: list[ProfileCellOut] = Field(examples=[[{"cell": "36-2-0-5-3", "ratio": 1.31}]])
    corrections: list[CorrectionOut]

    @classmethod
    def of(cls, learned: Learned) -> Self:
        return cls(
            cells=[
                ProfileCellOut(cell=cell_text(cell), ratio=ratio)
                for cell, ratio in sorted(learned.cells.items())
            ],
            corrections=[
                CorrectionOut(predictor=predictor, sms=sms, ratio=ratio)
                for (predictor, sms), ratio in sorted(learned.corrections.items())
            ],
        )


class ChangeOut(BaseModel):
    """One thing that was learned, or reset."""

    model_config = ConfigDict(from_attributes=True)

    kind: str = Field(description="`raised`, `lowered`, `corrected`, `reset`, `frozen` or `thawed`.")
    subject: str = Field(examples=["36-2-0-5-3", "decode 36"])
    before: float
    after: float
    evidence: str
    at_bound: bool = Field(description="A correction that would have gone further: measure again.")
    created_at: datetime


class ProfileDifferenceOut(BaseModel):
    """One quantity of two profiles."""

    model_config = ConfigDict(from_attributes=True)

    quantity: str = Field(examples=["compute"])
    unit: str = Field(examples=["TFLOP/s"])
    before: float | None
    after: float | None
