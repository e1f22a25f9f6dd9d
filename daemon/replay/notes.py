"""What a reader must know before trusting the numbers; shown in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Iterator

from pdmuxd.daemon.replay.document import ProfileDocument, ReplayDocument
from pdmuxd.engine.emulator.noise import WorkKind

DERIVED_PROFILE = (
    "The profile is derived, not measured: good for comparing policies, not for a device's numbers."
)


def profile_notes(profile: ProfileDocument) -> Iterator[str]:
    """What is special of the emulated device."""
    if profile.provenance.startswith("derived"):
        yield DERIVED_PROFILE
    noise = profile.noise
    parts = []
    if noise.bias_ratio:
        parts.append(f"work takes {100.0 * noise.bias_ratio:+g}%")
    if noise.scatter_ratio:
        parts.append(f"work scatters by {100.0 * noise.scatter_ratio:g}%")
    if noise.stall_ratio:
        parts.append(f"{100.0 * noise.stall_ratio:g}% of work stalls for {1000.0 * noise.stall_s:g} ms")
    if parts:
        yield f"On the emulated device {', '.join(parts)}."
    if noise.stall_every_s:
        still_ms = 1000.0 * noise.stall_s
        yield f"The emulated device stands still for {still_ms:g} ms every {noise.stall_every_s:g} s."
    for one in noise.by_kind:
        of = "decoding requests" if one.kind is WorkKind.DECODE else "new prompt tokens"
        size = f" of {one.from_size:,} {of} and more" if one.from_size else ""
        yield f"Emulated {one.kind} work{size} takes {100.0 * one.bias_ratio:+g}%."


def notes(document: ReplayDocument) -> list[str]:
    """One sentence each: nothing that changes the numbers goes unsaid."""
    trace = document.trace
    said = []
    if trace.tick_s > 0:
        said.append(
            f"Arrivals stand on {trace.tick_s:g}-second ticks; each tick's were spread uniformly over it "
            f"(seed {trace.seed})."
        )
    if trace.rate_scale != 1.0:
        said.append(f"Arrival times were divided by {trace.rate_scale:.4g}.")
    if trace.dropped_too_long:
        said.append(f"{trace.dropped_too_long:,} requests were left out because they are too long.")
    if trace.clipped:
        said.append(f"{trace.clipped:,} requests were shortened because they are too long.")
    said.extend(profile_notes(document.profile))
    unfinished = sum(policy.metrics.unfinished + policy.metrics.failed for policy in document.policies)
    if unfinished:
        said.append(
            f"{unfinished:,} requests failed or never ended (all policies together); they are misses."
        )
    return said
