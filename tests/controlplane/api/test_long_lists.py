"""Long answers are encoded line by line, and are what they would be at once."""

from __future__ import annotations

import json

from pydantic import BaseModel

from pdmuxd.controlplane.api.long_lists import long_list, with_items


class Line(BaseModel):
    text: str


class Answer(BaseModel):
    of: str
    lines: list[Line]
    next: int | None = None


def test_a_long_list_is_what_it_would_be_at_once() -> None:
    lines = [Line(text=text) for text in ("a", '"lines":[]', "\\1 \\g<0> ü")]
    answer = Answer(of='"lines":[]', lines=[])
    for some in ([], lines[:1], lines):
        made = long_list(answer, "lines", some)
        assert json.loads(bytes(made.body)) == answer.model_copy(update={"lines": some}).model_dump()


def test_an_empty_object_takes_items_as_well() -> None:
    assert with_items(b'{"a":1,"b":{},"c":{}}', "b", [b'"x":1', b'"y":{}']) == (
        b'{"a":1,"b":{"x":1,"y":{}},"c":{}}'
    )
