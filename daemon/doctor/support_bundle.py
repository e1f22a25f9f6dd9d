"""One archive for whoever helps: versions, settings, what the daemon says, logs. No secret is inside.

Each part is taken by itself, so that a daemon that hangs, or a file that cannot be read, costs its own part
only; `missing.txt` says what is not there and why.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from pdmuxd.daemon.process.redaction import MASK, mask_text
from pdmuxd.daemon.settings import LoadedSettings
from pdmuxd.daemon.settings.show import effective
from pdmuxd.engine.core.errors import PdmuxdError, SettingsError

LOG_BYTES = 2 << 20
"""Of the end of each log."""
HANGS = 3
REST = {
    "engine": "/engine",
    "version": "/version",
    "decisions": "/decisions?limit=500",
    "requests": "/requests?limit=500",
    "missed": "/requests?missed=true&limit=200",
    "alarms": "/alarms",
    "attainment": "/attainment?active=true&limit=500",
    "attainment-missed": "/attainment?state=missed&limit=500",
    "partitions": "/partitions",
    "guard": "/guard",
    "drift": "/drift",
    "policies": "/policies",
    "profile": "/profiles/active",
}
"""What is asked of the daemon, by the name of its file. Not the audit: it is about people."""
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_SECRET_FIELD = re.compile(
    r'(?i)("?(?:[a-z_]*api_key|password|secret|[a-z]*_?token)"?\s*[:=]\s*)("[^"]+"|\'[^\']+\')'
)


class Bundle:
    """Files by name; every text is masked on its way in. `secrets` are masked wherever they stand."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((each for each in secrets if len(each) >= 8), key=len, reverse=True)
        self._files: dict[str, bytes] = {}
        self.missing: dict[str, str] = {}

    def add(self, name: str, make: Callable[[], object]) -> None:
        """Add what `make` returns, as text or as JSON; what it raises of ours is said in missing.txt."""
        try:
            made = make()
        except (PdmuxdError, OSError, ValueError) as error:
            self.missing[name] = self.masked(str(error))
            return
        text = made if isinstance(made, str) else json.dumps(made, indent=1, default=str)
        self._files[name] = self.masked(text).encode()

    def masked(self, text: str) -> str:
        """Mask secrets: those that are known, and what looks like one."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _SECRET_FIELD.sub(rf'\1"{MASK}"', _HASH.sub(MASK, mask_text(text)))

    def write(self, path: Path) -> int:
        """Write the archive, readable by its owner only; how many files. Raises: SettingsError."""
        if self.missing:
            text = "".join(f"{name}: {why}\n" for name, why in self.missing.items())
            self._files["missing.txt"] = text.encode()
        root = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, data in self._files.items():
                    entry = tarfile.TarInfo(f"{root}/{name}")
                    entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                    archive.addfile(entry, io.BytesIO(data))
        except FileExistsError:
            raise SettingsError(f"{path} exists; name a file that does not") from None
        except OSError as error:
            raise SettingsError(f"cannot write {path}: {error.strerror}") from error
        return len(self._files)


def local_parts(bundle: Bundle, loaded: LoadedSettings) -> None:
    """What this machine knows without the daemon."""
    state_dir = loaded.settings.resolved_state_dir
    bundle.add("versions.json", _versions)
    bundle.add("settings.json", lambda: effective(loaded))
    bundle.add("logs/engine.log", lambda: tail(state_dir / "engine.log"))
    if (state_dir / "engine.log.1").exists():
        bundle.add("logs/engine.log.1", lambda: tail(state_dir / "engine.log.1"))
    hangs = sorted(state_dir.glob("engine-hang-*.txt"), key=lambda path: path.name)[-HANGS:]
    deaths = sorted(state_dir.glob("engine-death-*.txt"), key=lambda path: path.name)[-HANGS:]
    for path in hangs + deaths:
        bundle.add(f"logs/{path.name}", lambda path=path: tail(path))  # type: ignore[misc]


def daemon_parts(bundle: Bundle, get: Callable[[str], Any], metrics: Callable[[], str]) -> None:
    """What the running daemon says: `get` of a path of REST, and the text of /metrics."""
    for name, path in REST.items():
        bundle.add(f"daemon/{name}.json", lambda path=path: get(path))  # type: ignore[misc]
    bundle.add("daemon/metrics.txt", metrics)


def secrets_of(loaded: LoadedSettings, environ: Mapping[str, str]) -> list[str]:
    """Secrets that are known here, so that they are found wherever they were printed."""
    found = [value for name, value in environ.items() if re.search(r"(?i)key|token|secret|passw", name)]
    for path in (loaded.settings.resolved_token_file, loaded.settings.resolved_reader_token_file):
        try:
            found.append(path.read_text("ascii").strip())
        except (OSError, UnicodeDecodeError):
            continue
    if password := _password(loaded.settings.resolved_database_url):
        found.append(password)
    return found


def tail(path: Path, limit: int = LOG_BYTES) -> str:
    """The end of a log, from the beginning of a line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        data = file.read(limit)
    if size > limit:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


def _password(url: str) -> str | None:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        password = make_url(url).password
    except (ArgumentError, ValueError):
        return None
    return None if password is None else str(password)


def _versions() -> Mapping[str, object]:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": {
            found.metadata["Name"]: found.version for found in distributions() if found.metadata["Name"]
        },
    }
