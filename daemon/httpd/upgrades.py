"""Requests that offer another protocol (`Upgrade: h2c`), as Java's HTTP clients do: HTTP/1.1 goes on.

RFC 9110, 7.8: a server may ignore the offer. llhttp does not: it takes such a request for one without a body,
and what follows its head for another protocol. So the head is given to a new parser without the offer.
"""

from __future__ import annotations

from collections.abc import Iterable

Header = tuple[bytes, bytes]
_OFFER = frozenset({b"upgrade", b"http2-settings"})


def head_without_offer(method: bytes, target: bytes, version: str, headers: Iterable[Header]) -> bytes:
    """The head of the same request for an HTTP/1.1 parser."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in headers:
        if name in _OFFER:
            continue
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _OFFER)
            if not value:
                continue
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
