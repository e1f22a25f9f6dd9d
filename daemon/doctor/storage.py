"""State directory, disk, database and the place for sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.daemon.doctor.findings import Finding, fail, info, ok, warn
from pdmuxd.daemon.process.redaction import mask_text
from pdmuxd.daemon.settings import LoadedSettings
from pdmuxd.engine.core.errors import PdmuxdError

ENOUGH_BYTES = 1 << 30
TOO_LITTLE_BYTES = 100 << 20
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory that exists: the one asked for, or the nearest above it that does."""

    path: Path
    writable: bool
    free_bytes: int


LookAt = Callable[[Path], Directory]
Revision = Callable[[str], str | None]
"""The schema revision of the database at a URL, None if there is no database yet. Raises: PdmuxdError."""


ActiveProfile = Callable[[str], str | None]
"""The name of the profile in force in the database at a URL, None if there is none. Raises: PdmuxdError."""


def check_state_dir(loaded: LoadedSettings, look_at: LookAt) -> Iterator[Finding]:
    """Whether the daemon can write there, and how much."""
    wanted = loaded.settings.resolved_state_dir
    found = look_at(wanted)
    if not found.writable:
        yield fail(
            "state directory",
            f"this user may not write to {found.path}",
            f"run as its owner, or set state_dir (now {wanted}) elsewhere",
        )
    elif found.path != wanted:
        yield ok("state directory", f"{wanted} will be created")
    else:
        yield ok("state directory", f"{wanted} is writable")
    yield _space(found)


def check_runtime_dir(loaded: LoadedSettings, look_at: LookAt) -> Finding:
    """Whether sockets can be made, and where."""
    path = loaded.settings.resolved_runtime_dir
    if not look_at(path).writable:
        return fail("sockets", f"this user may not write to {path}", "set runtime_dir elsewhere")
    if loaded.notes:
        return info("sockets", "; ".join(loaded.notes), "set runtime_dir or a shorter state_dir to choose")
    return ok("sockets", f"in {path}")


def check_database(loaded: LoadedSettings, revision: Revision) -> Finding:
    """Whether the database is whole and of this version's schema."""
    try:
        found = revision(loaded.settings.resolved_database_url)
    except PdmuxdError as error:
        return fail(
            "database", mask_text(str(error)), "`pdmuxd db check` tells the same; see docs/configuration.md"
        )
    if found is None:
        return info("database", "there is none yet", "create it with: pdmuxd db upgrade")
    return ok("database", f"whole, schema revision {found}")


def check_profile(loaded: LoadedSettings, revision: Revision, active: ActiveProfile) -> Iterator[Finding]:
    """Whether the policies predict with what was measured here; nothing without a database."""
    try:
        if revision(loaded.settings.resolved_database_url) is None:
            return
        name = active(loaded.settings.resolved_database_url)
    except PdmuxdError:
        return  # the check of the database has said so
    if name is None:
        yield info(
            "profile",
            "none is active: the engine predicts with its own, or with a roofline",
            "measure one with: pdmuxd profile run --activate",
        )
    else:
        yield ok("profile", f"{name} is active")


def _space(found: Directory) -> Finding:
    free = f"{found.free_bytes // _MIB:,} MiB free in {found.path}"
    if found.free_bytes < TOO_LITTLE_BYTES:
        return fail("disk", free, f"free at least {TOO_LITTLE_BYTES // _MIB} MiB")
    if found.free_bytes < ENOUGH_BYTES:
        return warn("disk", free, f"{ENOUGH_BYTES // _MIB:,} MiB are recommended")
    return ok("disk", free)
