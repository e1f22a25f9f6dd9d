from __future__ import annotations

from pathlib import Path

import pytest
from traces import mooncake_line, write

from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.trace import TraceFormat
from pdmuxd.engine.core.errors import TraceError


def test_all_fields_are_read_when_a_line_is_as_published(tmp_path: Path) -> None:
    line = '{"timestamp": 27482, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 2353]}'
    found, requests = open_trace(write(tmp_path / "t.jsonl", line))
    (request,) = requests
    assert found is TraceFormat.MOONCAKE
    assert (request.arrival_s, request.tenant, request.line) == (27.482, "default", 1)
    assert (request.input_tokens, request.output_tokens) == (1030, 52)
    assert (request.prefix_ids, request.block_tokens) == ((46, 47, 2353), 512)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (mooncake_line(input_length=0, hash_ids=[]), "input_length: expected int >= 1"),
        (mooncake_line(input_length=-5, hash_ids=[]), "input_length: expected int >= 1"),
        (mooncake_line(output_length=0), "output_length: expected int >= 1"),
        (mooncake_line(output_length=10**9), "output_length: expected int <= 10000000"),
        (mooncake_line(timestamp=-1), "timestamp: expected float >= 0.0"),
        (mooncake_line(timestamp="soon"), "timestamp: expected float, got str"),
        (mooncake_line(input_length="700"), "input_length: expected int, got str"),
        (mooncake_line(output_length=1.5), "output_length: expected int, got float"),
        (mooncake_line(priority=1), "unknown field priority"),
        ('{"timestamp": 0, "input_length": 3, "output_length": 1}', "missing required field hash_ids"),
        (
            mooncake_line(input_length=1025, hash_ids=[1, 2]),
            "2 hash_ids for 1025 input tokens; allowed are exactly 3",
        ),
        (
            mooncake_line(input_length=512, hash_ids=[1, 2]),
            "2 hash_ids for 512 input tokens; allowed are exactly 1",
        ),
        (mooncake_line(hash_ids=[1, -2]), "hash_ids[1]: expected int >= 0"),
        (mooncake_line(hash_ids=[1, "b"]), "hash_ids[1]: expected int, got str"),
        ("[1, 2]", "expected object, got array"),
        ("nonsense", "not a JSON object"),
        ('{"timestamp": NaN, "input_length": 3, "output_length": 1, "hash_ids": [1]}', "not a JSON object"),
        (mooncake_line() + mooncake_line(), "not a JSON object"),
        ("", "the line is empty"),
        ("   ", "the line is empty"),
    ],
)
def test_the_line_is_named_when_it_is_malformed(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_line(), mooncake_line(), line, mooncake_line())
    _, requests = open_trace(path)
    with pytest.raises(TraceError) as caught:
        list(requests)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert what in str(caught.value)


def test_the_cut_is_named_when_the_last_line_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(mooncake_line() + "\n" + mooncake_line()[:-9])
    _, requests = open_trace(path)
    with pytest.raises(TraceError, match=r"t\.jsonl:2: the last line is cut short"):
        list(requests)


def test_the_last_line_counts_when_only_its_line_end_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(mooncake_line() + "\r\n" + mooncake_line())
    assert len(list(open_trace(path)[1])) == 2


def test_reading_stops_early_when_no_more_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_line(), mooncake_line(), "broken")
    _, requests = open_trace(path)
    assert [next(requests).line, next(requests).line] == [1, 2]
