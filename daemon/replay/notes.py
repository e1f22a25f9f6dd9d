"""What a reader must know before trusting the numbers; shown in the terminal and in the report."""

from __future__ import annotations

from pdmuxd.daemon.replay.document import ReplayDocument

DERIVED_PROFILE = (
    "The profile is derived, not measured: good for comparing policies, not for a device's numbers."
)


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
    if document.profile.provenance.startswith("derived"):
        said.append(DERIVED_PROFILE)
    unfinished = sum(policy.metrics.unfinished + policy.metrics.failed for policy in document.policies)
    if unfinished:
        said.append(
            f"{unfinished:,} requests failed or never ended (all policies together); they are misses."
        )
    return said
