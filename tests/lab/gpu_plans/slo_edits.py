"""Edits of a TBT target through REST, and when the daemon tells that each is in force."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_servers.serving import Daemon
from pdmuxd.daemon.bench.servers.server import ServerError

TENANT = "/api/v1/tenants/default/slo"
_WAIT_S = 30.0


@dataclass(slots=True)
class Edit:
    """One change of the target."""

    tbt_ms: float
    sent_s: float
    version: int | None = None
    """Settings version; None until the daemon has answered."""
    in_force_s: float | None = None
    decided_s: float | None = None
    """Both since it was sent."""


class Watcher:
    """Follows the events; at most one edit is open at a time."""

    def __init__(self, low_ms: float) -> None:
        self._low_ms = low_ms
        self._confirmed = 0
        self._edit: Edit | None = None
        self.done = asyncio.Event()

    def watch(self, edit: Edit) -> None:
        """Wait for the consequences of this one from now on."""
        self.done.clear()
        self._edit = edit

    def answered(self, edit: Edit, version: int) -> None:
        """The daemon has stored it; the engine may have confirmed it before."""
        edit.version = version
        self._check(time.monotonic())

    async def follow(self, daemon: Daemon) -> None:
        """Read until cancelled."""
        async for told_s, kind, data in daemon.events("settings", "decision"):
            if kind == "settings" and data["kind"] == "in_force":
                self._confirmed = max(self._confirmed, data["version"])
            elif kind == "decision":
                self._decided(told_s, data["slack_ms"])
            self._check(told_s)

    def _decided(self, told_s: float, slack_ms: float | None) -> None:
        """The slack is the target less a bound of at least 0: above the low target it is the high one's."""
        edit = self._edit
        if edit is None or edit.decided_s is not None or slack_ms is None:
            return
        if (slack_ms > self._low_ms) == (edit.tbt_ms > self._low_ms):
            edit.decided_s = told_s - edit.sent_s

    def _check(self, told_s: float) -> None:
        edit = self._edit
        if edit is None or edit.version is None:
            return
        if edit.in_force_s is None and self._confirmed >= edit.version:
            edit.in_force_s = told_s - edit.sent_s
        if edit.in_force_s is not None and edit.decided_s is not None:
            self.done.set()


async def edit_to_and_fro(
    daemon: Daemon, targets_ms: Sequence[float], edits: int, every_s: float
) -> list[Edit]:
    """Make the edits; what became of each."""
    low_ms, high_ms = sorted(targets_ms)
    watcher = Watcher(low_ms)
    following = asyncio.create_task(watcher.follow(daemon))
    made: list[Edit] = []
    slo = await daemon.get(TENANT)
    fields = {name: slo[name] for name in ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "attainment_ratio")}
    try:
        for number in range(edits):
            await asyncio.sleep(every_s)
            edit = Edit(tbt_ms=(high_ms, low_ms)[number % 2], sent_s=time.monotonic())
            made.append(edit)
            watcher.watch(edit)
            answer = await daemon.put(TENANT, fields | {"tbt_ms": edit.tbt_ms})
            watcher.answered(edit, answer["settings_version"])
            await asyncio.wait(
                {following, asyncio.create_task(watcher.done.wait())},
                timeout=_WAIT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if following.done():
                raise ServerError(f"the daemon stopped telling what happens: {following.exception()}")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return made
