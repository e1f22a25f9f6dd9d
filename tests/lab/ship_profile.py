"""Make a profile of the emulator from a measured one: today's fits to the samples of then.

    python tests/lab ship-profile docs/measurements/h200/llama-8b.profile.json.gz \\
        h200-llama-8b-measured --fused-serving-ratio 1.03 --colocated-serving-ratio 1.065 \\
        --fused-step-us 600 > engine/emulator/profiles/h200-llama-8b-measured.json
    python tests/lab ship-profile docs/measurements/h200/llama-8b.partition-kernels.profile.json.gz \\
        h200-llama-8b-served --fused-serving-ratio 1.03 --colocated-serving-ratio 1.065 --fused-step-us 600 \\
        --decode-in-whole-groups --with-host > engine/emulator/profiles/h200-llama-8b-served.json
    python tests/lab ship-profile docs/measurements/h100/llama-8b-sampled.profile.json.gz \\
        h100-llama-8b-served --fused-serving-ratio 1.08 --colocated-serving-ratio 1.065 \\
        --fused-request-us 8 --decode-in-whole-groups --with-host \\
        > engine/emulator/profiles/h100-llama-8b-served.json

Where the figures come from is in docs/measurements/h200-emulator.md and h100.md; what is beside splits was
not measured on an H100.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from pdmuxd.daemon.profiling.emulated import emulator_profile
from pdmuxd.engine.emulator.digits import rounded
from pdmuxd.engine.emulator.front import Delivery
from pdmuxd.engine.emulator.launches import NO_TIME, HostTurn, Launches
from pdmuxd.engine.emulator.noise import NO_NOISE, DeviceNoise
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.shapes import DEPLOYMENTS, OVERHEADS
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.measurement import Target

PRIOR = DEPLOYMENTS["h200-llama-8b"].device
HOST = HostTurn(
    form_fused_s=3.6e-3,
    form_request_s=0.45e-3,
    form_row_s=29e-6,
    launch_s=4.9e-3,
    read_row_s=26e-6,
    end_request_s=0.31e-3,
)
"""Of calls that were timed on one H100's host, in chat and conversation (docs/decisions/0092)."""
STALLS = DeviceNoise(stall_ratio=0.001, stall_s=0.022)
"""Of quick hosts: 2 of 2,584 fused steps, and 2 of 1,322 (docs/measurements/h100.md, 2026-11-27 and -28)."""
DELIVERY = Delivery(token_s=14e-6, step_s=50e-6, request_s=0.8e-3)
"""Of the gateway by the direct way on two cores (docs/measurements/README.md, What a token costs)."""


def refitted(old: MeasuredProfile) -> MeasuredProfile:
    """The same samples, fitted again; the driver's version without what its vendor says around it."""
    told = old.provenance
    hello = Hello(
        protocol=0,
        engine=told.engine,
        engine_version=told.engine_version,
        pid=0,
        model=told.model,
        device=told.device,
        total_sms=old.total_sms,
        partitions=old.partitions,
        profile="",
        profile_provenance="",
        settings_version=0,
        model_shape=old.model,
        model_hash=told.model_hash,
        device_shape=replace(PRIOR, name=told.device),
        overheads=replace(OVERHEADS, fused_graph_tokens=old.overheads.fused_graph_tokens),
        tensor_parallel=old.tensor_parallel,
        driver=next(
            (word for word in told.driver.split() if word[:1].isdigit() and "." in word), told.driver
        ),
        sglang_version=told.sglang_version,
        kv_capacity_tokens=old.kv_capacity_tokens,
        max_decode_bs=old.max_decode_bs,
        captured_decode_bs=old.captured_decode_bs,
        captured_fused_tokens=old.captured_fused_tokens,
        fused_tile_rows=old.fused_tile_rows,
        can_measure=True,
    )
    return assemble(
        old.name,
        Target.of(hello),
        old.samples,
        measured_at=told.measured_at,
        took_s=told.took_s,
        interrupted=told.interrupted,
    )


def serving_profile(
    source: Path,
    name: str,
    *,
    fused_serving_ratio: float = 1.0,
    colocated_serving_ratio: float = 1.0,
    fused_step_us: float = 0.0,
    fused_request_us: float = 0.0,
    decode_in_whole_groups: bool = False,
    with_host: bool = False,
    model: str = "llama-8b",
) -> Profile:
    """The emulator's profile of a measured one; `model` is what it serves the model as."""
    made = emulator_profile(refitted(read_file(source)))
    per_layer_s = fused_request_us * 1e-6 / made.model.layers
    return replace(
        made,
        name=name,
        model=replace(made.model, name=model),
        fused_serving_ratio=fused_serving_ratio,
        colocated_serving_ratio=colocated_serving_ratio,
        decode_in_whole_groups=decode_in_whole_groups,
        launches=Launches(fused_step_s=fused_step_us * 1e-6, fused_layer_request_s=per_layer_s),
        host=HOST if with_host else NO_TIME,
        delivery=DELIVERY if with_host else None,
        noise=STALLS if with_host else NO_NOISE,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a profile of docs/measurements, or an exported one")
    parser.add_argument("name")
    parser.add_argument("--fused-serving-ratio", type=float, default=1.0)
    parser.add_argument("--colocated-serving-ratio", type=float, default=1.0)
    parser.add_argument("--fused-step-us", type=float, default=0.0, help="between two fused steps")
    parser.add_argument("--fused-request-us", type=float, default=0.0, help="of each that decodes in them")
    parser.add_argument("--model", default="llama-8b", help="its name (default: %(default)s)")
    parser.add_argument(
        "--decode-in-whole-groups", action="store_true", help="the engine's splits, not MuxWise's"
    )
    parser.add_argument(
        "--with-host", action="store_true", help="the scheduler's thread, and the process behind it"
    )
    options = parser.parse_args()
    profile = serving_profile(**vars(options))
    sys.stdout.write(msgspec.json.encode(rounded(msgspec.to_builtins(profile))).decode() + "\n")
