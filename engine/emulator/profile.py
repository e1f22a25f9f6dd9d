"""Profiles: everything the emulator knows of a model on a GPU, read from JSON.

`truth` is what the emulated device runs by: what a campaign measured on the SM counts that it measured, what
follows from these for other counts, and elsewhere a roofline. `predictor` is what policies predict with: the
fitted solo-run coefficients of the profile. The two differ, as they do on a real device: in serving steps
take longer than in a campaign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

import msgspec

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import ContentionGuard, GuardCell
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.partitions import SmRules, aligned_decode
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.roofline import SINGLE_GPU
from pdmuxd.engine.core.shapes import DeviceShape, ModelShape, Overheads, TensorParallel
from pdmuxd.engine.emulator.device import Device
from pdmuxd.engine.emulator.front import Delivery
from pdmuxd.engine.emulator.launches import NO_TIME, PDMUXD, HostTurn, Launches
from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise
from pdmuxd.engine.emulator.truth import SoloRunFit, Truth
from pdmuxd.engine.link.legacy import with_new_names
from pdmuxd.engine.link.predictors import Predictors, contention_guard, latency_model

DEFAULT_PROFILE = "h200-llama-8b-served"
FORMAT = 2
_MEASURED = "measured: "
_RATIOS = (
    "contention_ratio",
    "decode_colocated_ratio",
    "decode_colocated_sms_ratio",
    "prefill_colocated_ratio",
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One model on one GPU. Raises: ProfileError if its parts contradict each other."""

    format: int
    name: str
    provenance: str
    """`derived: ...` or `measured: ...`, with the source."""
    model: ModelShape
    device: DeviceShape
    overheads: Overheads
    tensor_parallel: TensorParallel = SINGLE_GPU
    kv_capacity_tokens: int
    guard_default_ratio: float
    guard_cells: tuple[tuple[GuardCell, float], ...] = ()
    """Of the pairs that were measured; elsewhere the default counts."""
    contention_ratio: float
    """Slowdown of decode beside a prefill that moves the whole bandwidth, on top of sharing it."""
    decode_colocated_ratio: float = 0.0
    """Slowdown of decode beside any prefill, however little bandwidth that uses."""
    decode_colocated_sms_ratio: float = 0.0
    """Further slowdown of decode beside a prefill on all SMs; on fewer SMs in proportion."""
    prefill_colocated_ratio: float | None = None
    """Slowdown of prefill beside a decode step that moves the whole bandwidth on all SMs: in proportion to
    what it moves, and to the root of the SMs that it has. None: `contention_ratio`, on any SMs."""
    fused_tile_rows: int = 0
    """As the roofline's."""
    solo_run: tuple[SoloRunFit, ...]
    captured_decode_bs: tuple[int, ...] = ()
    """Batch sizes that the predictors count decode in; empty if they count requests."""
    fused_serving_ratio: float = 1.0
    """What a fused step takes while serving over what a campaign measured of it. One H200 that draws all the
    power that it may takes 1 to 3% longer for what it does (docs/measurements/h200.md, 2026-11-22)."""
    colocated_serving_ratio: float = 1.0
    """The same of a decode step beside a prefill: its median over its prediction in fixed splits
    (`split_over_predicted` of docs/measurements/h200/*.runs.jsonl.gz), over what the emulated device gives
    without it. The SMs' clock is a fifth to a quarter lower there than in a campaign."""
    launches: Launches = PDMUXD
    """What the host adds to steps."""
    host: HostTurn = NO_TIME
    """What the scheduler's thread needs for a step."""
    delivery: Delivery | None = None
    """The process behind the scheduler. None: tokens are at the client when their step is read."""
    decode_in_whole_groups: bool = False
    """Whether policies choose among the splits that SGLang's engine has there: decode in whole groups of SMs,
    prefill on the rest (docs/decisions/0014). Else MuxWise's multiples of 16."""
    noise: DeviceNoise = NO_NOISE
    """How the device differs from what is said above."""

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ProfileError(f"profile {self.name}: format is {self.format}; this version reads {FORMAT}")
        if not self.provenance.startswith(("derived: ", _MEASURED)):
            raise ProfileError(f"profile {self.name}: provenance must start with 'derived: ' or 'measured: '")
        if self.kv_capacity_tokens <= 0:
            raise ProfileError(f"profile {self.name}: kv_capacity_tokens must be positive")
        for field in _RATIOS:
            ratio = getattr(self, field)
            if ratio is not None and not 0.0 <= ratio <= 1.0:
                raise ProfileError(f"profile {self.name}: {field} must be within 0 and 1")
        for field in ("fused_serving_ratio", "colocated_serving_ratio"):
            if not 0.5 <= getattr(self, field) <= 2.0:
                raise ProfileError(f"profile {self.name}: {field} must be within 0.5 and 2")

    def new_device(self, *, serves: bool = True) -> Device:
        """The emulated device, idle; one that serves, or one that a campaign measures."""
        return Device(
            bytes_per_s=self.device.bytes_per_s,
            contention_ratio=self.contention_ratio,
            decode_colocated_ratio=self.decode_colocated_ratio,
            decode_colocated_sms_ratio=self.decode_colocated_sms_ratio,
            prefill_colocated_ratio=self.prefill_colocated_ratio,
            colocated_serving_ratio=self.colocated_serving_ratio if serves else 1.0,
            noise=self.noise,
        )

    @cached_property
    def truth(self) -> Truth:
        """The latencies of the emulated device itself."""
        is_measured = self.provenance.startswith(_MEASURED)
        return Truth(
            model=self.model,
            device=self.device,
            overheads=self.overheads,
            tensor_parallel=self.tensor_parallel,
            fused_tile_rows=self.fused_tile_rows,
            fused_serving_ratio=self.fused_serving_ratio,
            launches=self.launches,
            measured={fit.sms: fit for fit in self.solo_run} if is_measured else {},
        )

    @cached_property
    def predictor(self) -> SoloRunModel:
        """The latencies that policies believe."""
        return SoloRunModel(
            prefill={fit.sms: fit.prefill for fit in self.solo_run if fit.prefill is not None},
            decode={fit.sms: fit.decode for fit in self.solo_run if fit.decode is not None},
            fused={fit.sms: fit.fused for fit in self.solo_run if fit.fused is not None},
            fallback=self.truth,
            device=self.device,
            captured_bs=self.captured_decode_bs,
        )

    @cached_property
    def policy_context(self) -> PolicyContext:
        return self.context()

    def context(self, predictors: Predictors | None = None) -> PolicyContext:
        """What policies are built from when an operator has set `predictors`.

        Raises: ProfileError if a ratio of the guard is out of range.
        """
        d = self.device
        latency = self.predictor
        guard = ContentionGuard(default_ratio=self.guard_default_ratio, cells=dict(self.guard_cells))
        if predictors is not None:
            latency = latency_model(predictors, self.truth)
            guard = contention_guard(predictors)
        rules = SmRules(total_sms=d.total_sms, min_sms=d.min_sms, multiple_sms=d.multiple_sms)
        return PolicyContext(
            rules=rules,
            splits=aligned_decode(rules).splits if self.decode_in_whole_groups else None,
            layers=self.model.layers,
            latency=latency,
            guard=guard,
        )


def available_profiles() -> tuple[str, ...]:
    """Names of the profiles that ship with the package."""
    folder = resources.files("pdmuxd.engine.emulator") / "profiles"
    return tuple(sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")))


def load_profile(name_or_path: str) -> Profile:
    """Read a shipped profile by name, or any by path (anything with a slash or ending in .json).

    Raises: ProfileError naming the shipped ones, or the field that is wrong.
    """
    return _decode(name_or_path, _reader(name_or_path))


def _reader(name_or_path: str) -> Callable[[], bytes]:
    if "/" in name_or_path or name_or_path.endswith(".json"):
        return Path(name_or_path).read_bytes
    if name_or_path not in available_profiles():
        shipped = ", ".join(available_profiles())
        raise ProfileError(f"unknown profile {name_or_path!r}; shipped are {shipped}, or give a .json file")
    return (resources.files("pdmuxd.engine.emulator") / "profiles" / f"{name_or_path}.json").read_bytes


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: int


def _decode(name: str, read: Callable[[], bytes]) -> Profile:
    try:
        data = read()
        if msgspec.json.decode(data, type=_Head).format == 1:
            data = with_new_names(data, format=FORMAT)
        return msgspec.json.decode(data, type=Profile)
    except OSError as error:
        raise ProfileError(f"profile {name}: cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ProfileError(f"profile {name}: {error}") from error
