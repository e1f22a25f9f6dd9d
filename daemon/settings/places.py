"""Where the daemon keeps its files when nobody says otherwise."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pdmuxd.engine.core.errors import SettingsError

SOCKET_PATH_BYTES = 107
"""The longest path of a socket on Linux: `sun_path` of unix(7) has 108 bytes, one of them the closing NUL."""
SOCKET_NAME_BYTES = 32
"""The longest name of a socket that may be put into the runtime directory."""
SGLANG_FOLDER = "sglang"
"""SGLang's environment in the state directory, as `pdmuxd install-sglang` makes it."""
REPORTS = "reports"
"""Folder of the state directory from which pages show reports."""
SERVICE_STATE = Path("/var/lib/pdmuxd")
SERVICE_TOKEN = Path("/etc/pdmuxd/admin-token")
"""Written by `pdmuxd install-service --credential`."""
MAX_RUNTIME_DIR_BYTES = SOCKET_PATH_BYTES - 1 - SOCKET_NAME_BYTES


def absolute(path: Path) -> Path:
    """Expand `~`, and take a relative path from the working directory."""
    return path.expanduser().absolute()


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """systemd's $STATE_DIRECTORY, else the XDG base directories' place for state."""
    given = _first(environ.get("STATE_DIRECTORY", ""))
    if given is not None:
        return given
    xdg = environ.get("XDG_STATE_HOME", "")
    # The XDG specification: "If an implementation encounters a relative path [...] it should ignore it."
    return (Path(xdg) if xdg.startswith("/") else Path("~/.local/state")) / "pdmuxd"


def given_runtime_dir(environ: Mapping[str, str]) -> Path | None:
    """systemd's $RUNTIME_DIRECTORY."""
    return _first(environ.get("RUNTIME_DIRECTORY", ""))


def default_token_file(state_dir: Path, environ: Mapping[str, str]) -> Path:
    """The service's credential if there is one, for root the file that it comes from, else in `state_dir`."""
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    if credentials:
        shown = Path(credentials) / "admin-token"
        try:
            if shown.is_file():
                return shown
        except PermissionError:
            return shown  # whoever reads it says so
    own = state_dir / "admin-token"
    if state_dir == SERVICE_STATE and not own.exists() and os.access(SERVICE_TOKEN, os.R_OK):
        return SERVICE_TOKEN
    return own


def is_credential(path: Path, environ: Mapping[str, str]) -> bool:
    """Whether systemd made the file, and sees to it that nobody else reads it."""
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    return bool(credentials) and path.parent == Path(str(credentials))


def default_runtime_dir(state_dir: Path) -> Path:
    """`run` in the state directory, or a short path of its own if sockets would not fit."""
    inside = state_dir / "run"
    return inside if fits_sockets(inside) else short_runtime_dir(state_dir)


def short_runtime_dir(state_dir: Path) -> Path:
    """Always the same for one user and one state directory, so that a restart finds what was left."""
    mark = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:12]
    # The name can be guessed: `make_private` refuses a directory that someone else has put there.
    return Path("/tmp") / f"pdmuxd-{os.geteuid()}-{mark}"  # noqa: S108


def fits_sockets(directory: Path) -> bool:
    """Whether a socket in `directory` has a path that the kernel takes."""
    return len(os.fsencode(absolute(directory))) <= MAX_RUNTIME_DIR_BYTES


def make_private(directory: Path) -> None:
    """Create `directory` for this user alone, or make sure that it is.

    Raises: SettingsError if it cannot be created, is no directory, or belongs to someone else.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise SettingsError(f"{directory} is not a directory; remove it or choose another path")
        if found.st_uid != os.geteuid():
            raise SettingsError(f"{directory} belongs to another user; choose another path")
        if found.st_mode & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise SettingsError(f"cannot use the directory {directory}: {error.strerror}") from error


def _first(directories: str) -> Path | None:
    """systemd separates several directories with colons."""
    first = directories.split(":")[0]
    return Path(first) if first else None
