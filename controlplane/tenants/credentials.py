"""API keys and admin tokens: how they are made, what is kept of them, and how one is compared."""

from __future__ import annotations

import hashlib
import hmac
import secrets

KEY_PREFIX = "pdm_"
ADMIN_TOKEN_PREFIX = "pdma_"  # noqa: S105 - what a token begins with
_RANDOM_BYTES = 32
LAST_CHARACTERS = 4
"""Shown so that people can tell keys apart; over 230 of the 256 random bits stay unknown."""


def new_secret(prefix: str = KEY_PREFIX) -> str:
    """Make a secret: the prefix and 32 random bytes in URL-safe base64 (43 characters)."""
    return prefix + secrets.token_urlsafe(_RANDOM_BYTES)


def new_key_id() -> str:
    """Make the public name of a key, by which it is listed and revoked."""
    return f"key_{secrets.token_hex(8)}"


def digest(secret: str) -> str:
    """SHA-256 of a key or token, in hexadecimal.

    A fast hash is right here: the keys have 256 bits of entropy, so no guess can be tried often enough,
    and the gateway computes it for every request. A slow hash is for what people choose themselves.
    """
    return hashlib.sha256(secret.encode("utf-8", errors="surrogatepass")).hexdigest()


def is_same_digest(sha256: str, expected_sha256: str) -> bool:
    """Whether two SHA-256 are the same; takes the same time wherever they differ."""
    return hmac.compare_digest(sha256, expected_sha256.lower())
