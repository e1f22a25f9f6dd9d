"""Answers with thousands of lines, made in a worker thread and encoded line by line.

The encoder keeps Python's lock for as long as it encodes: 3 MB at once would hold all streams for 30 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import BaseModel
from starlette.responses import Response


def with_items(answer: bytes, name: str, items: Iterable[bytes]) -> bytes:
    """A JSON object with `items` in its list, or object, `name`, which is empty in `answer`."""
    head, empty, tail = re.split(rb'"%b":(\[\]|\{\})' % re.escape(name.encode()), answer, maxsplit=1)
    return b"".join((head, b'"%b":' % name.encode(), empty[:1], b",".join(items), empty[1:], tail))


def long_list(answer: BaseModel, name: str, lines: Iterable[BaseModel]) -> Response:
    """`answer` with `lines` in its list `name`, which is empty in it."""
    head = answer.model_dump_json(by_alias=True).encode()
    items = (line.model_dump_json(by_alias=True).encode() for line in lines)
    return Response(with_items(head, name, items), media_type="application/json")
