"""Replay several policies, one after another or in a pool of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdmuxd.daemon.replay.pool import run_tasks
from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan, replay_policy

OnPolicyProgress = Callable[[int, int, float], None]
"""Index of the policy, requests that have ended, virtual time in seconds."""


def replay_policies(
    plan: ReplayPlan, policies: Sequence[str], jobs: int, on_progress: OnPolicyProgress
) -> list[PolicyReplay]:
    """Replay every policy; results in the order of `policies`, whatever the number of jobs.

    Raises: what `replay_policy` raises; EngineLostError if a worker process dies.
    """
    return run_tasks(
        _replay,
        plan,
        policies,
        jobs,
        on_report=lambda index, report: on_progress(index, *report),
        # A worker's last report may be lost in the interval between two.
        on_done=lambda index, result: on_progress(index, result.metrics.requests, result.metrics.makespan_s),
    )


def _replay(plan: ReplayPlan, policy: str, report: Callable[[tuple[int, float]], None]) -> PolicyReplay:
    return replay_policy(plan, policy, lambda done, now_s: report((done, now_s)))
