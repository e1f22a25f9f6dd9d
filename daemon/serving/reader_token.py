"""The reader token's file: it holds the SHA-256 of a token that may read everything and change nothing."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.engine.core.errors import SettingsError

PREFIX = "pdmr_"
_RANDOM_BYTES = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ReaderToken:
    """Made, replaced and ended by the command line while the daemon runs, which looks each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], str | None] | None = None
        """Which file was read (inode, when it changed, size), and what it held."""

    def sha256(self) -> str | None:
        """The hash that a token must have; None if there is no token, or the file is not ours.

        Reading the file for each of thousands of wrong tokens took a tenth of the event loop.
        """
        try:
            found = self.path.stat()
            which = found.st_ino, found.st_mtime_ns, found.st_size
            if self._read is None or self._read[0] != which:
                text = self.path.read_text(encoding="ascii", errors="replace").strip()
                self._read = which, text if _SHA256.fullmatch(text) else None
        except OSError:
            return None
        return self._read[1]

    def issue(self) -> str:
        """Make a token, in place of one that there was; it is in the answer only.

        Raises: SettingsError if the file cannot be written.
        """
        secret = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        unfinished = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(digest(secret) + "\n")
            unfinished.replace(self.path)
        except OSError as error:
            raise self._refusal("write", error) from error
        return secret

    def revoke(self) -> bool:
        """End the token; whether there was one. Raises: SettingsError if the file cannot be removed."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refusal("remove", error) from error
        return True

    def _refusal(self, verb: str, error: OSError) -> SettingsError:
        return SettingsError(f"admin.reader_token_file: cannot {verb} {self.path}: {error.strerror}")
