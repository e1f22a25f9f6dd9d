"""The daemon's replays, as REST asks them: one job, whatever is asked for."""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.controlplane.node.traffic_replays import Job, WantedVariant


class Jobs:
    """Begins, shows and cancels the one job; `asked` are the variants that were asked for."""

    def __init__(self) -> None:
        self.asked: tuple[WantedVariant, ...] = ()
        self.job = Job(job_id="0c8b", state="waiting", created_s=0.0, requests=10, done=0, total=20)

    async def begin(self, variants: tuple[WantedVariant, ...], *, minutes: float) -> Job:
        self.asked = variants
        return self.job

    def latest(self) -> tuple[Job, ...]:
        return (self.job,)

    def get(self, job_id: str) -> Job:
        return self.job

    def cancel(self, job_id: str) -> Job:
        self.job = replace(self.job, state="cancelled")
        return self.job
