"""Mooncake's published JSONL: one request a line, one hash id per 512 prompt tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pdmuxd.daemon.replay.formats.json_lines import BlockId, Milliseconds, Tokens, decode_row
from pdmuxd.daemon.replay.formats.lines import Line
from pdmuxd.daemon.replay.trace import TraceRequest, line_error

BLOCK_TOKENS = 512
FIELDS = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
ALLOWED = (
    'a Mooncake line is {"timestamp": milliseconds, "input_length": tokens, "output_length": tokens, '
    '"hash_ids": [one id per 512 input tokens]}'
)


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    timestamp: Milliseconds
    input_length: Tokens
    output_length: Tokens
    hash_ids: tuple[BlockId, ...]


def read_mooncake(path: Path, lines: Iterable[Line]) -> Iterator[TraceRequest]:
    """Yield the requests of a Mooncake trace; all belong to the tenant `default`.

    Raises: TraceError for a malformed line, or one with the wrong number of hash ids.
    """
    decoder = msgspec.json.Decoder(_Row)
    for line in lines:
        row = decode_row(decoder, path, line, ALLOWED)
        blocks = -(-row.input_length // BLOCK_TOKENS)
        if len(row.hash_ids) != blocks:
            raise line_error(
                path,
                line.number,
                f"{len(row.hash_ids)} hash_ids for {row.input_length} input tokens; "
                f"allowed are exactly {blocks}, one per {BLOCK_TOKENS} tokens",
            )
        yield TraceRequest(
            line=line.number,
            arrival_s=row.timestamp / 1000.0,
            tenant="default",
            input_tokens=row.input_length,
            output_tokens=row.output_length,
            prefix_ids=row.hash_ids,
            block_tokens=BLOCK_TOKENS,
        )
