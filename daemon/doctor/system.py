"""Python, open files, the service manager and the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pdmuxd.daemon.doctor.findings import Finding, fail, info, ok, warn

PYTHON_RANGE = ((3, 11), (3, 13))
RELEASE_YEAR = 2025
"""A clock before this is wrong."""
LARGEST_STEP_S = 0.5
FILES_PER_REQUEST = 2
"""A client's connection, and the engine's."""
OTHER_FILES = 64
TOKEN_PROCESSES = 4
"""The scheduler, the detokenizer, SGLang's HTTP process and the gateway: each may need a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Both clocks at one instant: seconds since 1970, and seconds since some fixed instant."""

    wall_s: float
    monotonic_s: float


def check_python(version: tuple[int, ...]) -> Finding:
    """Whether this Python is one that pdmuxd is made for."""
    low, high = PYTHON_RANGE
    text = ".".join(map(str, version))
    if low <= version[:2] <= high:
        return ok("python", text)
    supported = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return fail("python", f"{text} is not supported", f"install pdmuxd with Python {supported}")


def check_open_files(limit: int | None, max_in_flight: int) -> Finding:
    """Whether `data.max_in_flight` requests can be open at once; `limit` None is unlimited."""
    needed = FILES_PER_REQUEST * max_in_flight + OTHER_FILES
    if limit is None or limit >= needed:
        return ok("open files", f"limit {limit if limit is not None else 'none'}, {needed} needed at most")
    return warn(
        "open files",
        f"limit {limit}; {max_in_flight} requests in flight (data.max_in_flight) need {needed}",
        f"raise it with `ulimit -n {needed}`; the systemd unit does so",
    )


def check_quota(cores: float | None) -> Finding:
    """Whether the kernel lets the daemon and its engine use the processors; None: as much as there is."""
    if cores is None:
        return ok("cpu quota", "none")
    text = f"{cores:g} processors: whatever needs more for an instant stops the daemon and its engine at once"
    hint = "raise or remove it (CPUQuota of the unit, the CPU limit of the container)"
    return warn("cpu quota", text, hint) if cores < TOKEN_PROCESSES else info("cpu quota", text, hint)


def check_systemd(*, running: bool, notify_socket: str | None) -> Finding:
    """Whether a service manager is there to watch the daemon."""
    if notify_socket:
        return ok("systemd", "listens to this process")
    if running:
        return ok("systemd", "runs this machine")
    return info("systemd", "does not run this machine: nothing restarts the daemon if it dies")


def check_clock(first: ClockReading, last: ClockReading, *, synchronised: bool | None) -> Iterator[Finding]:
    """Whether times can be believed: scheduling goes by the monotonic clock, records by the other."""
    yield _wall(first, last)
    if synchronised is None:
        yield info("clock sync", "the kernel does not say whether the clock is synchronised")
    elif synchronised:
        yield ok("clock sync", "the clock is synchronised")
    else:
        yield warn(
            "clock sync",
            "the clock is not synchronised",
            "times in logs and records may be off: run chrony or systemd-timesyncd",
        )


def _wall(first: ClockReading, last: ClockReading) -> Finding:
    now = datetime.fromtimestamp(last.wall_s, UTC)
    if last.monotonic_s < first.monotonic_s:
        return fail("clock", "the monotonic clock went back", "the machine or its virtualisation is faulty")
    if now.year < RELEASE_YEAR:
        return warn("clock", f"the year is {now.year}", "set the clock")
    step_s = (last.wall_s - first.wall_s) - (last.monotonic_s - first.monotonic_s)
    if abs(step_s) > LARGEST_STEP_S:
        return warn(
            "clock", f"it was set by {step_s:+.1f} s while this ran", "find out what sets it in steps"
        )
    return ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
