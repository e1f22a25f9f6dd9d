"""Are the two addresses free, or already a running pdmuxd's?"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pdmuxd.daemon.doctor.findings import Finding, fail, ok
from pdmuxd.daemon.process.lock import Holder
from pdmuxd.daemon.settings import AdminSection, DataSection, Settings
from pdmuxd.engine.core.errors import PdmuxdError

Bind = Callable[[str, int], int | None]
"""Tries to listen on a host and port; the errno of the refusal, None if it could."""
IsPdmuxd = Callable[[str, int], bool]
"""Whether a running pdmuxd answers there; asked of the admin plane."""


HolderOf = Callable[[Path], Holder | None]
"""Who holds a state directory. Raises: PdmuxdError if this user may not look."""


def check_ports(
    settings: Settings, bind: Bind, is_pdmuxd: IsPdmuxd, holder_of: HolderOf = lambda _: None
) -> Iterator[Finding]:
    """One finding per plane: of the daemon that runs on the state directory, else of the settings' ports."""
    with contextlib.suppress(PdmuxdError):  # the check of the state directory says what is wrong
        holder = holder_of(settings.resolved_state_dir)
        if holder is not None and holder.admin_url and holder.data_url:
            yield from _of_running(settings, holder.pid, holder.admin_url, holder.data_url, is_pdmuxd)
            return
    runs = False
    for name, plane in (("admin", settings.admin), ("data", settings.data)):
        error = bind(plane.host, plane.port)
        if name == "admin":
            runs = error == errno.EADDRINUSE and is_pdmuxd(plane.host, plane.port)
        yield _finding(name, plane, error, pdmuxd_runs=runs)


def _of_running(
    settings: Settings, pid: str, admin_url: str, data_url: str, is_pdmuxd: IsPdmuxd
) -> Iterator[Finding]:
    admin = urlsplit(admin_url)
    answers = is_pdmuxd(admin.hostname or "", admin.port or 0)
    for name, url, plane in (("admin", admin_url, settings.admin), ("data", data_url, settings.data)):
        check, port = f"{name} port", urlsplit(url).port
        if name == "admin" and not answers:
            yield fail(check, f"the running pdmuxd (process {pid}) does not answer at {url}", "see its log")
            continue
        differs = f"; the settings say port {plane.port}" if plane.port not in (0, port) else ""
        yield ok(check, f"the running pdmuxd (process {pid}) listens at {url}{differs}")


def _finding(
    name: str, plane: AdminSection | DataSection, error: int | None, *, pdmuxd_runs: bool
) -> Finding:
    check, where = f"{name} port", f"{plane.host} port {plane.port}"
    if error is None:
        return ok(check, f"{where} is free" if plane.port else f"{plane.host}, any free port")
    if error == errno.EADDRINUSE:
        if pdmuxd_runs:
            return ok(check, f"{where} is used by the running pdmuxd")
        return fail(check, f"another program uses {where}", f"stop it, or set {name}.port to a free one")
    if error in (errno.EACCES, errno.EPERM):
        return fail(check, f"this user may not listen on {where}", f"set {name}.port to a number above 1023")
    if error == errno.EADDRNOTAVAIL:
        return fail(check, f"{plane.host} is no address of this machine", f"set {name}.host to one that is")
    reason = os.strerror(error)
    return fail(check, f"cannot listen on {where}: {reason}", f"correct {name}.host and {name}.port")
