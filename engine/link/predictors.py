"""What policies predict with for a model on a GPU, as it travels from the daemon's store to the engine."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pdmuxd.engine.core.guard import ContentionGuard, GuardCell
from pdmuxd.engine.core.latency import (
    DecodeCoefficients,
    FusedCoefficients,
    PrefillCoefficients,
    SoloRunModel,
)
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, Overheads


class SoloRun(msgspec.Struct, frozen=True, kw_only=True):
    """The fitted predictors of one SM count; None where nothing was measured."""

    sms: int
    prefill: PrefillCoefficients | None = None
    decode: DecodeCoefficients | None = None
    fused: FusedCoefficients | None = None


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """How much slower than fitted work has lately been on so many SMs."""

    sms: int
    prefill_ratio: float = 1.0
    decode_ratio: float = 1.0
    fused_ratio: float = 1.0


class Predictors(msgspec.Struct, frozen=True, kw_only=True):
    """A profile in force: the store's version of it, with everything that was learned since."""

    profile_id: int
    profile: str
    provenance: str
    solo_run: tuple[SoloRun, ...]
    guard_default_ratio: float
    guard_cells: tuple[tuple[GuardCell, float], ...] = ()
    guard_frozen: bool = False
    corrections: tuple[Correction, ...] = ()
    captured_decode_bs: tuple[int, ...] = ()
    by_roofline: tuple[tuple[str, int], ...] = ()
    """(`prefill` or `decode`, SMs) that was measured and that the roofline predicts all the same, since its
    fit is doubtful. SM counts that are not here and have no fit are predicted by the fits around them."""
    device: DeviceShape | None = None
    """The device as measured, for SM counts and batches without a fit. None: what the engine assumes."""
    overheads: Overheads | None = None
    model_hash: str = ""
    total_sms: int = 0
    device_name: str = ""
    gpus: int = 0
    """GPUs of one copy of the model. Together with the three fields before it this says which engine the
    predictors are for; empty or 0: any."""


def latency_model(predictors: Predictors, prior: RooflineModel) -> SoloRunModel:
    """What policies predict with: the fits with their corrections and, for what has none, a roofline.

    The roofline is the engine's `prior`, with the device and overheads of the profile if it has any.
    """
    fallback = replace(
        prior,
        device=predictors.device or prior.device,
        overheads=predictors.overheads or prior.overheads,
    )
    by_sms = {each.sms: each for each in predictors.corrections}
    none = Correction(sms=0)
    prefill: dict[int, PrefillCoefficients | None] = {
        sms: None for name, sms in predictors.by_roofline if name == "prefill"
    }
    decode: dict[int, DecodeCoefficients | None] = {
        sms: None for name, sms in predictors.by_roofline if name == "decode"
    }
    fused = {}
    for fit in predictors.solo_run:
        correction = by_sms.get(fit.sms, none)
        if fit.prefill is not None:
            prefill[fit.sms] = fit.prefill.scaled(correction.prefill_ratio)
        if fit.decode is not None:
            decode[fit.sms] = fit.decode.scaled(correction.decode_ratio)
        if fit.fused is not None:
            fused[fit.sms] = fit.fused.scaled(correction.fused_ratio)
    return SoloRunModel(
        prefill=prefill,
        decode=decode,
        fused=fused,
        fallback=fallback,
        device=fallback.device,
        captured_bs=predictors.captured_decode_bs,
    )


def contention_guard(predictors: Predictors) -> ContentionGuard:
    """The guard as stored. Raises: ProfileError for a ratio out of range."""
    return ContentionGuard(
        default_ratio=predictors.guard_default_ratio,
        cells=dict(predictors.guard_cells),
        is_frozen=predictors.guard_frozen,
    )
