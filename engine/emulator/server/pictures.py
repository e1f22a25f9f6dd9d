"""Pictures as the emulated model sees them: as many tokens as its patches, which no other picture has.

Source of the count: Qwen2.5-VL's processor (`preprocessor_config.json`: patches of 14 pixels, merged by two
in each direction).
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from hashlib import blake2b

import msgspec

from pdmuxd.engine.emulator.server.refusals import refuse

PIXELS_PER_TOKEN = 28
"""In each direction."""
MOST_TOKENS = 16_384
"""A larger picture is made smaller (`max_pixels` of the same processor)."""
UNREADABLE_TOKENS = 256
"""Of a picture whose size is not in its first bytes: as many as one of 448 by 448 pixels."""
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]{1,32};base64,", re.IGNORECASE)
_FRAME_MARKS = frozenset((0xC0, 0xC1, 0xC2))
"""JPEG's marks in front of a size: baseline, extended, progressive."""


class _Url(msgspec.Struct):
    url: str


_ADDRESS = msgspec.json.Decoder(str | _Url)


def picture(address: bytes, param: str) -> str:
    """The text that stands for a picture, given as a data URL in JSON. Raises: RequestError 400."""
    try:
        found = _ADDRESS.decode(address)
        url = found if isinstance(found, str) else found.url
        head = _DATA_URL.match(url)
        if head is None:
            raise ValueError
        return of_content(url[head.end() :])
    except (msgspec.DecodeError, ValueError):
        raise refuse(f"`{param}` must be a picture as a `data:image/...;base64,` URL", param=param) from None


def of_content(content: str) -> str:
    """The text of a picture given in base64. Raises: ValueError for what is no base64."""
    try:
        data = base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    digest = blake2b(data, digest_size=3).digest()
    # A piece of a space and five letters or digits is one token; the last digit makes neighbours differ.
    pieces = (f" {digest.hex()[:4]}{i % 10}" for i in range(tokens_of_picture(data)))
    return "".join(pieces)


def tokens_of_picture(data: bytes) -> int:
    """How many tokens a PNG, a JPEG or a GIF takes."""
    size = _size(data)
    if size is None:
        return UNREADABLE_TOKENS
    wide, high = (max(1, round(pixels / PIXELS_PER_TOKEN)) for pixels in size)
    return min(wide * high, MOST_TOKENS)


def _size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None if they cannot be read."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        wide, high = struct.unpack(">II", data[16:24])
        return wide, high
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        wide, high = struct.unpack("<HH", data[6:10])
        return wide, high
    if not data.startswith(b"\xff\xd8"):
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in _FRAME_MARKS:
            high, wide = struct.unpack(">HH", data[at + 5 : at + 9])
            return wide, high
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
