from __future__ import annotations

from pathlib import Path

import pytest
from traces import write

from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.trace import TraceFormat
from pdmuxd.engine.core.errors import TraceError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROW = "2023-11-16 18:17:03.9799600,4808,10"


def test_arrivals_count_from_the_first_row_when_fractions_have_seven_digits(tmp_path: Path) -> None:
    # As published: CRLF, and no line end after the last row.
    path = tmp_path / "t.csv"
    path.write_bytes(f"{HEADER}\r\n{ROW}\r\n2023-11-16 18:18:04.0319605,3180,8".encode())
    found, requests = open_trace(path)
    first, second = requests
    assert found is TraceFormat.AZURE
    assert second.arrival_s - first.arrival_s == pytest.approx(60.0520005, abs=1e-9)
    assert (second.input_tokens, second.output_tokens, second.line) == (3180, 8, 3)
    assert (first.prefix_ids, first.block_tokens) == ((), 0)


@pytest.mark.parametrize(
    "text", ["2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:00+00:00", "2023-11-16 18:17:03"]
)
def test_a_timestamp_is_read_when_it_is_of_another_published_form(tmp_path: Path, text: str) -> None:
    (request,) = open_trace(write(tmp_path / "t.csv", HEADER, f"{text},1,1"))[1]
    assert 0.0 <= request.arrival_s < 1.0


def test_columns_are_found_by_name_when_their_order_differs(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "ContextTokens,TIMESTAMP,GeneratedTokens", "7,2023-11-16 18:17:03,9")
    (request,) = open_trace(path)[1]
    assert (request.input_tokens, request.output_tokens) == (7, 9)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("2023-11-16 18:17:04,0,10", "ContextTokens is '0'; allowed are 1 to 10,000,000"),
        ("2023-11-16 18:17:04,5,-1", "GeneratedTokens is '-1'"),
        ("2023-11-16 18:17:04,5,", "GeneratedTokens is ''"),
        ("2023-11-16 18:17:04,5.0,1", "ContextTokens is '5.0'"),
        ("2023-11-16 18:17:04,٣,1", "ContextTokens is '٣'"),
        ("2023-11-16 18:17:04,5", "2 fields; allowed are 3"),
        ("2023-11-16 18:17:04,5,1,9", "4 fields; allowed are 3"),
        ("2023-13-16 18:17:04,5,1", "TIMESTAMP is '2023-13-16 18:17:04'; allowed is a UTC time such as"),
        ("yesterday,5,1", "TIMESTAMP is 'yesterday'"),
        ("2023-11-16 18:17:04+02:00,5,1", "TIMESTAMP is"),
        ("", "the line is empty"),
    ],
)
def test_the_line_is_named_when_it_is_malformed(tmp_path: Path, row: str, what: str) -> None:
    path = write(tmp_path / "t.csv", HEADER, ROW, row, ROW)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path)[1])
    assert str(caught.value).startswith(f"{path}:3: ")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("TIMESTAMP,ContextTokens", "missing column GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens,Tenant", "unknown column 'Tenant'"),
        ("time,ContextTokens,GeneratedTokens", "missing column TIMESTAMP; unknown column 'time'"),
        ("TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens", "a column is named twice"),
        (ROW, "missing column TIMESTAMP, ContextTokens, GeneratedTokens"),
    ],
)
def test_the_header_is_named_when_a_column_is_wrong(tmp_path: Path, header: str, what: str) -> None:
    path = write(tmp_path / "t.csv", header, ROW)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path)[1])
    assert str(caught.value).startswith(f"{path}:1: {what}")


def test_the_cut_is_named_when_the_last_line_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}\n{ROW}\n{ROW[:-4]}")
    with pytest.raises(TraceError, match=r"t\.csv:3: the last line is cut short: 2 fields"):
        list(open_trace(path)[1])


def test_an_empty_trace_is_an_error_when_there_is_only_a_header(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no request after the header"):
        list(open_trace(write(tmp_path / "t.csv", HEADER))[1])
