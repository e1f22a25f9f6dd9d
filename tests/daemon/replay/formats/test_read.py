from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import mooncake_line, native_line, write

from pdmuxd.daemon.replay.formats.lines import MAX_LINE_BYTES
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.trace import TraceFormat
from pdmuxd.engine.core.errors import TraceError


@pytest.mark.parametrize(
    ("first", "what"),
    [
        ("hello", "unknown format; allowed first lines are"),
        ('{"time": 1}', "no known field; allowed first lines are"),
        ('{"timestamp": 1', "not a JSON object"),
        ('{"a":' * 100_000, "not a JSON object"),
    ],
)
def test_the_formats_are_listed_when_the_first_line_is_of_none(tmp_path: Path, first: str, what: str) -> None:
    path = write(tmp_path / "t", first)
    with pytest.raises(TraceError) as caught:
        open_trace(path)
    assert str(caught.value).startswith(f"{path}:1: {what}")


def test_the_given_format_wins_when_the_first_line_says_another(tmp_path: Path) -> None:
    path = write(tmp_path / "t", native_line())
    with pytest.raises(TraceError, match=r"t:1: .*a Mooncake line is"):
        list(open_trace(path, TraceFormat.MOONCAKE)[1])


def test_an_empty_file_is_an_error_when_opened(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="the file is empty"):
        open_trace(path)


@pytest.mark.parametrize("name", ["missing", "."])
def test_the_reason_is_given_when_the_file_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"cannot be read: (No such file|Is a directory)"):
        open_trace(tmp_path / name)


def test_the_byte_is_named_when_it_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(native_line().encode() + b"\n" + native_line(tenant="x").encode().replace(b"x", b"\xff"))
    with pytest.raises(TraceError, match=r":2: byte 30 \(0xff\) is not UTF-8 text"):
        list(open_trace(path)[1])


def test_a_byte_order_mark_is_no_harm_when_it_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf" + mooncake_line().encode())
    assert len(list(open_trace(path)[1])) == 1


def test_a_line_is_refused_when_it_does_not_end(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b" " * (MAX_LINE_BYTES + 5))
    with pytest.raises(TraceError, match=":1: the line is longer than"):
        open_trace(path)


@settings(deadline=None)
@given(junk=st.binary(max_size=120), cut=st.integers(0, 120))
def test_only_trace_errors_come_out_when_bytes_are_any(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t"
    path.write_bytes(mooncake_line().encode() + b"\n" + mooncake_line().encode()[:cut] + junk)
    try:
        requests = list(open_trace(path)[1])
    except TraceError as error:
        assert str(error).startswith(f"{path}:")  # noqa: PT017 - either outcome is allowed
    else:
        assert all(request.input_tokens >= 1 and request.output_tokens >= 1 for request in requests)
