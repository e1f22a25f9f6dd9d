"""Names of prompts' leading parts: equal where prompts begin alike, and telling nothing of the text.

Each is a keyed hash of everything up to there, under a key of this run of the daemon that is nowhere written.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

BLOCK_BYTES = 1024
MOST_BLOCKS = 64
"""What comes later counts as nobody else's: so a prompt costs 0.2 ms at most."""
_HASH_BYTES = 7
"""So that a name is a positive number in JSON, whatever reads it."""


class PrefixHasher:
    """One per daemon."""

    def __init__(self, salt: bytes | None = None) -> None:
        self._salt = salt or secrets.token_bytes(32)

    def names(self, prompt: bytes, namespace: str) -> tuple[int, ...]:
        """A name for each leading block of a prompt; of tenants that share no cache they never are equal."""
        running = blake2b(namespace.encode(), key=self._salt, digest_size=_HASH_BYTES)
        found: list[int] = []
        whole = min(len(prompt) // BLOCK_BYTES, MOST_BLOCKS)
        for index in range(whole):
            running.update(prompt[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES])
            found.append(int.from_bytes(running.copy().digest(), "big"))
        return tuple(found)
