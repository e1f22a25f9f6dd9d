"""What is installed where, and how: files first, then the commands that put them to use."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pdmuxd.engine.core.errors import EngineError, SettingsError

PROGRAM = "/opt/pdmuxd/bin/pdmuxd"
"""In the unit as it is shipped."""
_TOKEN_BYTES = 32
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an administrator asks for."""

    program: Path
    example: str
    """Of pdmuxd.toml."""
    data: str
    """HOST:PORT of the data plane's socket, if systemd holds it."""
    admin: str
    sockets: bool = False
    credential: bool = False
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to be written."""

    path: str
    text: str
    mode: int = 0o644
    is_kept: bool = False
    """It is the administrator's: one that is there stays."""
    is_secret: bool = False


def files_for(wanted: Wanted) -> tuple[File, ...]:
    """All files, by their places in the system. Raises: SettingsError for a program that is not there."""
    if not os.access(wanted.program, os.X_OK):
        raise SettingsError(f"--program: {wanted.program} cannot be executed")
    service = _unit("pdmuxd.service").replace(PROGRAM, _quoted(wanted.program))
    made = [
        File(path="/etc/systemd/system/pdmuxd.service", text=service),
        File(path="/etc/sysusers.d/pdmuxd.conf", text=_unit("pdmuxd.sysusers")),
        File(path="/etc/tmpfiles.d/pdmuxd.conf", text=_unit("pdmuxd.tmpfiles")),
        File(path="/etc/pdmuxd/pdmuxd.env", text=_unit("pdmuxd.env.example"), mode=0o600, is_kept=True),
        File(path="/etc/pdmuxd/pdmuxd.toml", text=wanted.example, is_kept=True),
    ]
    if wanted.sockets:
        for name, address in (("data", wanted.data), ("admin", wanted.admin)):
            unit = _unit(f"pdmuxd-{name}.socket")
            text = re.sub(r"^ListenStream=.*$", f"ListenStream={address}", unit, flags=re.MULTILINE)
            made.append(File(path=f"/etc/systemd/system/pdmuxd-{name}.socket", text=text))
        made.append(_drop_in("sockets.conf"))
    if wanted.credential:
        token = secrets.token_urlsafe(_TOKEN_BYTES) + "\n"
        made.append(
            File(path="/etc/pdmuxd/admin-token", text=token, mode=0o600, is_kept=True, is_secret=True)
        )
        made.append(_drop_in("credential.conf"))
    return tuple(made)


def commands_for(wanted: Wanted) -> tuple[tuple[str, ...], ...]:
    """What is run when the files are there, in this order."""
    units = ("pdmuxd-data.socket", "pdmuxd-admin.socket") if wanted.sockets else ()
    enable = ("systemctl", "enable", *(("--now",) if wanted.now else ()), *units, "pdmuxd.service")
    migrate = ("runuser", "-u", "pdmuxd", "--", str(wanted.program), "--set", "state_dir=/var/lib/pdmuxd")
    return (
        ("systemd-sysusers", "/etc/sysusers.d/pdmuxd.conf"),
        ("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/pdmuxd.conf"),
        (*migrate, "db", "upgrade"),
        ("systemctl", "daemon-reload"),
        enable,
    )


def write(made: Sequence[File], root: Path) -> list[str]:
    """Write them below `root`; what was done, a line each. Raises: SettingsError if one cannot be written."""
    done = []
    for file in made:
        path = root / file.path.lstrip("/")
        if file.is_kept and path.exists():
            done.append(f"kept     {path}")
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(path.name + ".new")
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode)
            with os.fdopen(descriptor, "w") as opened:
                os.fchmod(descriptor, file.mode)
                opened.write(file.text)
            unfinished.replace(path)
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror}; is this root?") from error
        done.append(f"written  {path}")
    return done


def run(command: Sequence[str]) -> None:
    """Run one of `commands_for`. Raises: EngineError with its last words."""
    try:
        done = subprocess.run(  # noqa: S603 - one of ours
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise EngineError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def _quoted(program: Path) -> str:
    """The path as a unit names it. Raises: SettingsError for characters that systemd refuses in it."""
    text = str(program)
    if not text.isprintable() or any(character in text for character in "\"'\\"):
        raise SettingsError(
            f"--program: {text!r} has a quote, a backslash or a control character in it, which a unit cannot "
            "start; allowed are other printable characters, spaces included"
        )
    text = text.replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _unit(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _drop_in(name: str) -> File:
    return File(path=f"/etc/systemd/system/pdmuxd.service.d/{name}", text=_unit(name))
