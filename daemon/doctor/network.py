"""Are the two addresses free, or already a running pdmuxd's?"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from pdmuxd.daemon.doctor.findings import Finding, fail, ok
from pdmuxd.daemon.settings import AdminSection, DataSection, Settings

Bind = Callable[[str, int], int | None]
"""Tries to listen on a host and port; the errno of the refusal, None if it could."""
IsPdmuxd = Callable[[str, int], bool]
"""Whether a running pdmuxd answers there; asked of the admin plane."""


def check_ports(settings: Settings, bind: Bind, is_pdmuxd: IsPdmuxd) -> Iterator[Finding]:
    """One finding per plane."""
    runs = False
    for name, plane in (("admin", settings.admin), ("data", settings.data)):
        error = bind(plane.host, plane.port)
        if name == "admin":
            runs = error == errno.EADDRINUSE and is_pdmuxd(plane.host, plane.port)
        yield _finding(name, plane, error, pdmuxd_runs=runs)


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
