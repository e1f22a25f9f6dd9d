"""How long the steps of a session take, on a GPU and where a session is tried without one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How long things take, and on what."""

    engine: str
    """`gpu`, or `cpu` and `emulator` to try a session without one."""
    start_s: float
    """A server's start with its warm-up, which is a good part of most steps."""
    run_s: float
    drain_s: float
    micro_s: float
    slo_s: float
    profile_s: float
    check_s: float
    tp_s: float
    matrix_least_s: float
    calm_s: float
    flood_s: float
    streams_s: float


SCALES = {
    # One H200, 2026-11-21: 66 to 98 s until a server of ours serves Llama-8B's shape.
    "gpu": Scale(
        engine="gpu",
        start_s=100.0,
        run_s=30.0,
        drain_s=8.0,
        micro_s=15.0,
        slo_s=30.0,
        profile_s=195.0,
        check_s=60.0,
        tp_s=300.0,
        matrix_least_s=190.0,
        calm_s=60.0,
        flood_s=120.0,
        streams_s=15.0,
    ),
    "cpu": Scale(
        engine="cpu",
        start_s=150.0,
        run_s=5.0,
        drain_s=8.0,
        micro_s=3.0,
        slo_s=6.0,
        profile_s=20.0,
        check_s=5.0,
        tp_s=10.0,
        matrix_least_s=60.0,
        calm_s=6.0,
        flood_s=12.0,
        streams_s=4.0,
    ),
    "emulator": Scale(
        engine="emulator",
        start_s=30.0,
        run_s=2.0,
        drain_s=3.0,
        micro_s=2.0,
        slo_s=4.0,
        profile_s=12.0,
        check_s=2.0,
        tp_s=4.0,
        matrix_least_s=15.0,
        calm_s=10.0,
        flood_s=20.0,
        streams_s=3.0,
    ),
}


def times(run_s: float, scale: Scale) -> tuple[str, ...]:
    """The arguments of a step that makes runs."""
    return "--duration-s", f"{run_s:g}", "--drain-s", f"{scale.drain_s:g}"
