"""A measured profile as one that the emulated engine runs by: its truth is what was measured."""

from __future__ import annotations

from typing import Any

import msgspec

from pdmuxd.engine.emulator.profile import FORMAT, Profile
from pdmuxd.engine.emulator.truth import SoloRunFit
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json


def emulator_profile(measured: MeasuredProfile) -> Profile:
    """The fitted roofline and contention as the truth, the fitted predictors as what policies believe."""
    return Profile(
        format=FORMAT,
        name=measured.name,
        provenance=measured.provenance_line,
        model=measured.model,
        device=measured.device,
        overheads=measured.overheads,
        tensor_parallel=measured.tensor_parallel,
        kv_capacity_tokens=measured.kv_capacity_tokens,
        guard_default_ratio=measured.guard_default_ratio,
        guard_cells=measured.guard_cells,
        contention_ratio=measured.contention_ratio,
        decode_colocated_ratio=measured.decode_colocated_ratio,
        decode_colocated_sms_ratio=measured.decode_colocated_sms_ratio,
        prefill_colocated_ratio=measured.prefill_colocated_ratio,
        fused_tile_rows=measured.fused_tile_rows,
        solo_run=tuple(
            SoloRunFit(sms=fit.sms, prefill=fit.prefill, decode=fit.decode, fused=fit.fused)
            for fit in measured.solo_run
        ),
        captured_decode_bs=measured.captured_decode_bs,
    )


def emulator_profile_json(document: dict[str, Any]) -> str:
    """Turn an exported profile into the text of a file for `engine.profile`. Raises: ProfileError."""
    profile = emulator_profile(from_json(msgspec.json.encode(document), "the export"))
    return msgspec.json.format(msgspec.json.encode(profile), indent=1).decode() + "\n"
