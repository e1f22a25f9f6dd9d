"""How messages travel: two ZeroMQ frames, the protocol's name with its version, and msgpack.

To the engine the second frame is one message, to the daemon an array: handing records over one by one would
cost the engine more than making them. The version stands outside, so that an end of another version is
recognised whatever its structs look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from pdmuxd.engine.core.errors import LinkError, LinkProtocolError, ProfileError
from pdmuxd.engine.link.messages import LINK_PROTOCOL, Hello, ToDaemon, ToEngine

_NAME = b"pdmuxd-link/"
HEADER = _NAME + str(LINK_PROTOCOL).encode()

_MessageT = TypeVar("_MessageT")

_encoder = msgspec.msgpack.Encoder()
_to_daemon: msgspec.msgpack.Decoder[list[ToDaemon]] = msgspec.msgpack.Decoder(list[ToDaemon])
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)


def encode_to_daemon(messages: Sequence[ToDaemon]) -> bytes:
    """Encode the second frame; HEADER is the first."""
    return _encoder.encode(messages)


def encode_to_engine(message: ToEngine) -> bytes:
    """Encode the second frame; HEADER is the first."""
    return _encoder.encode(message)


def decode_to_daemon(frames: Sequence[bytes]) -> list[ToDaemon]:
    """Read messages from the engine. Raises: LinkError; LinkProtocolError for another protocol."""
    messages = _decode(frames, _to_daemon)
    for message in messages:
        if isinstance(message, Hello) and message.protocol != LINK_PROTOCOL:
            raise _mismatch(str(message.protocol))
    return messages


def decode_to_engine(frames: Sequence[bytes]) -> ToEngine:
    """Read a message from the daemon. Raises: LinkError."""
    return _decode(frames, _to_engine)


def _decode(frames: Sequence[bytes], decoder: msgspec.msgpack.Decoder[_MessageT]) -> _MessageT:
    if len(frames) != 2 or not frames[0].startswith(_NAME):
        raise LinkError(f"not a message of the engine link: {len(frames)} frames without its header")
    if frames[0] != HEADER:
        raise _mismatch(frames[0][len(_NAME) :].decode("ascii", "replace")[:20])
    try:
        return decoder.decode(frames[1])
    except (msgspec.DecodeError, ProfileError) as error:
        raise LinkError(f"a link message of {len(frames[1])} bytes cannot be decoded: {error}") from error


def _mismatch(theirs: str) -> LinkProtocolError:
    return LinkProtocolError(f"the other end speaks link protocol {theirs}, this end {LINK_PROTOCOL}")
