from __future__ import annotations

from pathlib import Path

import pytest
from traces import native_line, write

from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.trace import TraceFormat
from pdmuxd.engine.core.errors import TraceError


def test_tenant_and_prefix_are_read_when_given(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", native_line(1.5, prefix_ids=[7], block_tokens=64), native_line(2))
    found, requests = open_trace(path)
    first, second = requests
    assert found is TraceFormat.NATIVE
    assert (first.arrival_s, first.tenant) == (0.0015, "acme")
    assert (first.prefix_ids, first.block_tokens) == ((7,), 64)
    assert (second.prefix_ids, second.block_tokens) == ((), 0)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (native_line(tenant=""), "tenant: expected str of length >= 1"),
        (native_line(tenant="x" * 65), "tenant: expected str of length <= 64"),
        (native_line(input_tokens=0), "input_tokens: expected int >= 1"),
        (native_line(output_tokens=-3), "output_tokens: expected int >= 1"),
        (native_line(-0.1), "arrival_ms: expected float >= 0.0"),
        (native_line(slo="gold"), "unknown field slo"),
        (native_line(prefix_ids=[1]), "prefix_ids and block_tokens are given together"),
        (native_line(block_tokens=16), "prefix_ids and block_tokens are given together"),
        (native_line(prefix_ids=[1], block_tokens=0), "block_tokens: expected int >= 1"),
        (
            native_line(prefix_ids=[1, 2, 3], block_tokens=64),
            "3 prefix_ids for 100 input tokens in blocks",
        ),
        (
            native_line(prefix_ids=[1], block_tokens=32),
            "block_tokens is 32; allowed is 64, as in",
        ),
        (native_line(answer_ids=[1]), "prefix_ids and block_tokens are given together"),
        (
            native_line(prefix_ids=[1], block_tokens=64, answer_ids=[2, 3, 4, 5, 6, 7, 8]),
            "7 answer_ids behind 1 prefix_ids; allowed are at most",
        ),
        ('{"arrival_ms": 0, "tenant": "a", "input_tokens": 1}', "missing required field output_tokens"),
    ],
)
def test_the_line_is_named_when_it_is_malformed(tmp_path: Path, line: str, what: str) -> None:
    path = write(tmp_path / "t.jsonl", native_line(prefix_ids=[1, 2], block_tokens=64), line)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path)[1])
    assert str(caught.value).startswith(f"{path}:2: ")
    assert what in str(caught.value)
