"""A profile as it is stored and exchanged: what was measured, where, and what was made of it."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import fields
from pathlib import Path

import msgspec

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.core.roofline import SINGLE_GPU, RooflineModel
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.link.legacy import with_new_names
from pdmuxd.engine.link.predictors import Predictors, SoloRun
from pdmuxd.engine.profiling.launching import LaunchCost
from pdmuxd.engine.profiling.measurement import Sample
from pdmuxd.engine.profiling.solo import Errors

FORMAT = "pdmuxd-profile/3"
FORMAT_2 = "pdmuxd-profile/2"
"""Before launching was measured apart; read as it is."""
FORMAT_1 = "pdmuxd-profile/1"
"""The older format, with other names for some fields; it can still be read."""
MOST_BYTES = 64 * 2**20
"""The largest document that is read: a hundred times the size of one with 1,000 samples."""
_GZIP = b"\x1f\x8b"


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when it was measured; versions are empty where there is no such part."""

    device: str
    driver: str
    engine: str
    engine_version: str
    sglang_version: str
    model: str
    model_hash: str
    measured_at: str
    """ISO 8601, UTC."""
    took_s: float
    samples: int
    interrupted: bool = False


class FitErrors(msgspec.Struct, frozen=True, kw_only=True):
    """How far one predictor is off on samples that it was not fitted to."""

    predictor: str
    """`prefill`, `decode`, `fused` or `roofline`."""
    sms: int
    """0 for all."""
    samples: int
    outliers: int
    errors: Errors
    held_out: tuple[float | None, ...] = ()
    """Predicted over measured less 1 of each sample of the predictor, in their order, by a fit without it;
    None where none could be made. Empty in profiles of before 2026-11-23."""
    roofline_p90: float | None = None
    """What the roofline's p90 error is on the samples that `errors` is of; None in profiles of before
    2026-11-25."""


class GuardSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The guard's first values in one line."""

    pairs: int
    exceeded_ratio: float
    overestimate_ratio: float


class MeasuredProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one GPU, or spread over several alike, measured. All times in seconds."""

    format: str
    name: str
    provenance: Provenance
    total_sms: int
    partitions: tuple[tuple[int, int], ...]
    model: ModelShape
    device: DeviceShape
    overheads: Overheads
    tensor_parallel: TensorParallel = SINGLE_GPU
    """The GPUs that held the model; SM counts are those of each."""
    kv_capacity_tokens: int
    max_decode_bs: int
    captured_decode_bs: tuple[int, ...]
    captured_fused_tokens: tuple[int, ...] = ()
    fused_tile_rows: int = 0
    """As the engine told: see RooflineModel."""
    solo_run: tuple[SoloRun, ...]
    fits: tuple[FitErrors, ...]
    guard_default_ratio: float
    guard_cells: tuple[tuple[GuardCell, float], ...]
    guard: GuardSummary | None
    """None if too few pairs were measured for one."""
    contention_ratio: float
    decode_colocated_ratio: float = 0.0
    decode_colocated_sms_ratio: float = 0.0
    prefill_colocated_ratio: float | None = None
    """These four tell the emulated device what two streams take from each other (`hardware.py`)."""
    launching: LaunchCost | None = None
    """What the host takes to launch a prefill; None where it is part of what was measured."""
    left_out: tuple[str, ...] = ()
    """What was asked for but could not be fitted, and why."""
    samples: tuple[Sample, ...]

    def predictors(self, profile_id: int) -> Predictors:
        return Predictors(
            profile_id=profile_id,
            profile=self.name,
            provenance=self.provenance_line,
            solo_run=self.solo_run,
            guard_default_ratio=self.guard_default_ratio,
            guard_cells=self.guard_cells,
            captured_decode_bs=self.captured_decode_bs,
            by_roofline=self._by_roofline,
            device=self.device,
            overheads=self.overheads,
            model_hash=self.provenance.model_hash,
            total_sms=self.total_sms,
            device_name=self.provenance.device,
            gpus=self.tensor_parallel.gpus,
        )

    @property
    def _by_roofline(self) -> tuple[tuple[str, int], ...]:
        """What was fitted and is not among the predictors any more: the gate leaves out what is doubtful."""
        runs = {run.sms: run for run in self.solo_run}
        return tuple(
            (fit.predictor, fit.sms)
            for fit in self.fits
            if fit.sms
            and fit.predictor in ("prefill", "decode")
            and (fit.sms not in runs or getattr(runs[fit.sms], fit.predictor) is None)
        )

    @property
    def roofline(self) -> RooflineModel:
        """The roofline of the device as fitted: it predicts where no predictor was fitted."""
        return RooflineModel(
            model=self.model,
            device=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
        )

    @property
    def devices(self) -> str:
        """What it is of, such as `2 x NVIDIA H200`."""
        gpus, device = self.tensor_parallel.gpus, self.provenance.device
        return device if gpus == 1 else f"{gpus} x {device}"

    @property
    def provenance_line(self) -> str:
        """Where and when it was measured, in one line for people."""
        told = self.provenance
        versions = [
            f"{name} {version}"
            for name, version in (("driver", told.driver), ("SGLang", told.sglang_version))
            if version
        ]
        return (
            f"measured: {told.model} on {self.devices}, {told.samples} samples, {told.measured_at[:10]}, "
            + ", ".join([f"engine {told.engine} {told.engine_version}", *versions])
        )

    @property
    def worst_p90(self) -> float:
        """The worst p90 of all solo predictors; of one law for all SM counts, over all of them."""
        laws = {fit.predictor for fit in self.fits if not fit.sms}
        judged = (fit for fit in self.fits if fit.predictor != "roofline")
        return max(
            (fit.errors.p90 for fit in judged if not fit.sms or fit.predictor not in laws), default=1.0
        )


def to_json(profile: MeasuredProfile) -> bytes:
    """JSON for a file or the store."""
    return msgspec.json.encode(profile)


def from_json(data: bytes | str, where: str) -> MeasuredProfile:
    """Raises: ProfileError naming `where` and the field that is wrong."""
    try:
        if msgspec.json.decode(data, type=_Head).format == FORMAT_1:
            data = with_new_names(data, format=FORMAT)
        profile = msgspec.json.decode(data, type=MeasuredProfile)
    except (msgspec.MsgspecError, UnicodeDecodeError, ProfileError) as error:
        raise ProfileError(f"{where}: not a measured profile: {error}") from error
    if profile.format not in (FORMAT, FORMAT_2):
        raise ProfileError(f"{where}: format is {profile.format[:40]!r}; this version reads {FORMAT}")
    try:
        _check(profile)
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from error
    return profile


def samples_from_json(samples: str, document: str) -> tuple[Sample, ...]:
    """The samples of a profile whose `document` is stored without them. Raises: ProfileError."""
    try:
        is_format_1 = msgspec.json.decode(document, type=_Head).format == FORMAT_1
        return msgspec.json.decode(
            with_new_names(samples) if is_format_1 else samples, type=tuple[Sample, ...]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProfileError(f"stored samples cannot be read: {error}") from error


def _check(profile: MeasuredProfile) -> None:
    """Fits are never negative: a predictor with a negative one would promise work in no time.

    Raises: ProfileError naming the field.
    """
    for fit in profile.solo_run:
        of_prompts = fit.fused.prefill if fit.fused is not None else None
        parts = {
            "prefill": fit.prefill,
            "decode": fit.decode,
            "fused": fit.fused,
            "fused.prefill": of_prompts,
        }
        for name, part in parts.items():
            for field in fields(part) if part is not None else ():
                value = getattr(part, field.name)
                if isinstance(value, float) and not (math.isfinite(value) and value >= 0.0):
                    raise ProfileError(
                        f"{name}.{field.name} on {fit.sms} SMs is {value:g}; allowed are numbers from 0 on"
                    )
        if fit.prefill is not None and 0.0 < fit.prefill.colocated_ratio < 1.0:
            raise ProfileError(
                f"prefill.colocated_ratio on {fit.sms} SMs is {fit.prefill.colocated_ratio:g}; allowed are "
                "numbers from 1 on, and 0 where it was not measured"
            )


def read_file(path: Path) -> MeasuredProfile:
    """A profile from a JSON file, gzipped or not. Raises: ProfileError."""
    return from_json(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is gzipped. Raises: ProfileError."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ProfileError(f"{path}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ProfileError(f"{path}: larger than {MOST_BYTES} bytes, which no profile is")
    return data
