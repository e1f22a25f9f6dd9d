"""How the doctor looks at the machine. Checks get these functions, so tests can hand in others."""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pdmuxd.daemon.doctor.gpu import CudaDriver
from pdmuxd.daemon.doctor.kernel_clock import is_synchronised
from pdmuxd.daemon.doctor.libcuda import ask_driver
from pdmuxd.daemon.doctor.network import Bind, HolderOf, IsPdmuxd
from pdmuxd.daemon.doctor.storage import ActiveProfile, Directory, LookAt, Revision
from pdmuxd.daemon.doctor.system import ClockReading
from pdmuxd.daemon.process.cpu_quota import quota_cores
from pdmuxd.daemon.process.lock import holder_of

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_SYSTEMD = Path("/run/systemd/system")
"""sd_booted(3): systemd runs the machine if this directory exists."""
_HEALTH_TIMEOUT_S = 2.0


def _python() -> tuple[int, ...]:
    return tuple(sys.version_info[:3])


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def driver_version(path: Path = _DRIVER_VERSION) -> str | None:
    """The NVIDIA kernel driver's version, from the first line of its /proc file."""
    try:
        words = path.read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def try_bind(host: str, port: int) -> int | None:
    """Listen for an instant; the errno of the refusal, None if it went well."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno
    return None


def is_pdmuxd(host: str, port: int) -> bool:
    """Whether what listens there is alive and has pdmuxd's metrics."""
    import httpx  # slow to import, and only needed when the port is taken

    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    literal = f"[{reachable}]" if ":" in reachable else reachable
    try:
        with httpx.Client(
            base_url=f"http://{literal}:{port}", timeout=_HEALTH_TIMEOUT_S, trust_env=False
        ) as client:
            alive = client.get("/healthz").status_code == httpx.codes.OK
            return alive and "pdmuxd_build_info" in client.get("/metrics").text
    except httpx.HTTPError:
        return False


def look_at(wanted: Path) -> Directory:
    """The state of `wanted`, or of the nearest directory above it that exists."""
    path = next(path for path in (wanted, *wanted.parents) if path.exists())
    usage = os.statvfs(path)
    return Directory(
        path=path,
        writable=path.is_dir() and os.access(path, os.W_OK | os.X_OK),
        free_bytes=usage.f_bavail * usage.f_frsize,
    )


def database_revision(url: str) -> str | None:
    """Read the whole database. Raises: StoreError."""
    from sqlalchemy import make_url  # a quarter of a second to import, and a check may never get here
    from sqlalchemy.exc import ArgumentError

    from pdmuxd.controlplane.database.sqlite import sqlite_path
    from pdmuxd.controlplane.services.consistency import check

    try:
        path = sqlite_path(make_url(url))
    except ArgumentError:
        path = None  # `check` says what is wrong with it
    return None if path is not None and not path.exists() else check(url)


def active_profile(url: str) -> str | None:
    """The profile that the daemon puts in force. Raises: StoreError."""
    from pdmuxd.controlplane.database.opening import open_database
    from pdmuxd.controlplane.services.control_plane import ControlPlane

    engine = open_database(url)
    try:
        active = ControlPlane(engine).profiles.active()
    finally:
        engine.dispose()
    return None if active is None else f"{active.name}, version {active.version}, of {active.device}"


def open_files_limit() -> int | None:
    """How many files this process may have open, None if there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def read_clocks() -> ClockReading:
    """Both clocks, now."""
    return ClockReading(wall_s=time.time(), monotonic_s=time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Everything that the checks ask of the outside world."""

    python: Callable[[], tuple[int, ...]] = _python
    installed_version: Callable[[str], str | None] = installed_version
    cuda_driver: Callable[[], CudaDriver | None] = ask_driver
    driver_version: Callable[[], str | None] = driver_version
    bind: Bind = try_bind
    is_pdmuxd: IsPdmuxd = is_pdmuxd
    holder_of: HolderOf = holder_of
    look_at: LookAt = look_at
    database_revision: Revision = database_revision
    active_profile: ActiveProfile = active_profile
    open_files_limit: Callable[[], int | None] = open_files_limit
    quota_cores: Callable[[], float | None] = quota_cores
    clocks: Callable[[], ClockReading] = read_clocks
    clock_synchronised: Callable[[], bool | None] = is_synchronised
    systemd_running: Callable[[], bool] = _SYSTEMD.is_dir
    notify_socket: Callable[[], str | None] = lambda: os.environ.get("NOTIFY_SOCKET")
