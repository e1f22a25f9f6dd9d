"""What the two JSONL formats share: one strict JSON object a line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from pdmuxd.daemon.replay.formats.lines import Line
from pdmuxd.daemon.replay.trace import MAX_TOKENS, line_error

Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
BlockId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

Row = TypeVar("Row")


def decode_row(decoder: msgspec.json.Decoder[Row], path: Path, line: Line, allowed: str) -> Row:
    """Decode one line into the decoder's type.

    Raises: TraceError with the line, what is wrong with it, and `allowed`.
    """
    try:
        return decoder.decode(line.data)
    except msgspec.ValidationError as error:
        raise line_error(path, line.number, f"{_plain(error)}; {allowed}") from None
    except msgspec.DecodeError as error:
        what = "the last line is cut short" if not line.ended else "not a JSON object"
        raise line_error(path, line.number, f"{what} ({_plain(error)}); {allowed}") from None


def _plain(error: msgspec.DecodeError) -> str:
    """msgspec's message with the field in front: `input_length: expected int >= 1`."""
    what, _, where = str(error).replace("`", "").partition(" - at $")
    field = where.lstrip(".")
    return f"{field}: {what[:1].lower()}{what[1:]}" if field else what[:1].lower() + what[1:]
