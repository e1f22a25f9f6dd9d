"""Bodies that clients send compressed: gzip is read, up to the size that any body may have."""

from __future__ import annotations

import asyncio
import zlib

from pdmuxd.daemon.gateway.contract.refusals import refuse_field
from pdmuxd.daemon.httpd.asgi import Scope, header, too_large
from pdmuxd.engine.core.errors import RequestError

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
"""Tells zlib to read gzip's own head."""


async def decoded(scope: Scope, body: bytes, *, max_bytes: int) -> bytes:
    """The body itself. Raises: RequestError 400, 413, or 415 for another encoding than gzip."""
    named = (header(scope, b"content-encoding") or b"").strip().lower()
    if named in (b"", b"identity"):
        return body
    if named not in (b"gzip", b"x-gzip"):
        raise RequestError(
            "the Content-Encoding of a body may be gzip, or there is none",
            status=415,
            code="unsupported_encoding",
        )
    # A small body may become a large one, which takes milliseconds: other streams go on meanwhile.
    return await asyncio.to_thread(_gunzip, body, max_bytes)


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    reading = zlib.decompressobj(_GZIP_WINDOW)
    try:
        text = reading.decompress(body, max_bytes + 1)
    except zlib.error:
        raise refuse_field(
            "the body is not gzip, as its Content-Encoding says", code="invalid_gzip"
        ) from None
    if len(text) > max_bytes:
        raise too_large(max_bytes)
    if not reading.eof or reading.unused_data:
        raise refuse_field("the body is cut short, or goes on behind its gzip data", code="invalid_gzip")
    return text
