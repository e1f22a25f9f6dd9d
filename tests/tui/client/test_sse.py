from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.tui.client.sse import MAX_EVENT_BYTES, ServerEvent, SseError, SseParser

STREAM = (
    b"retry: 1000\n\n"
    b'event: hello\ndata: {"a": 1}\n\n'
    b": alive\nid: s-4\n\n"
    b'id: s-5\r\nevent: stats\r\ndata: {"b":\r\ndata: "\xc3\xa9"}\r\n\r\n'
    b"data: x\n\n"
)
EVENTS = [
    ServerEvent("hello", b'{"a": 1}', None),
    ServerEvent("message", b"", "s-4"),
    ServerEvent("stats", b'{"b":\n"\xc3\xa9"}', "s-5"),
    ServerEvent("message", b"x", None),
]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_events_are_the_same_when_the_stream_is_cut_anywhere(cuts):
    parser = SseParser()
    places = [0, *sorted(cuts), len(STREAM)]
    found = [event for a, b in pairwise(places) for event in parser.feed(STREAM[a:b])]
    assert found == EVENTS


def test_an_endless_event_is_refused_when_it_grows_too_large():
    parser = SseParser()
    assert parser.feed(b"data: ") == []
    with pytest.raises(SseError, match="bytes"):
        parser.feed(b"x" * MAX_EVENT_BYTES)
