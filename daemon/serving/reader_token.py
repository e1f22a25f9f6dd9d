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
    """Made, replaced and ended by the command line while the daemon runs, which reads the file each time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sha256(self) -> str | None:
        """The hash that a token must have; None if there is no token, or the file is not ours."""
        try:
            text = self.path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return None
        return text if _SHA256.fullmatch(text) else None

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
