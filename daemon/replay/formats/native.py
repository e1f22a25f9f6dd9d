"""Our own JSONL, for traces that other formats cannot hold: tenants, and prefixes in any block size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from pdmuxd.daemon.replay.formats.json_lines import BlockId, Milliseconds, Tokens, decode_row
from pdmuxd.daemon.replay.formats.lines import Line
from pdmuxd.daemon.replay.trace import TraceRequest, line_error

FIELDS = frozenset({"arrival_ms", "tenant", "input_tokens", "output_tokens"})
ALLOWED = (
    'a line is {"arrival_ms": milliseconds, "tenant": name, "input_tokens": tokens, '
    '"output_tokens": tokens} and, together, "prefix_ids": [ids] and "block_tokens": tokens; '
    'with these also "answer_ids": [ids]'
)

Tenant = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    arrival_ms: Milliseconds
    tenant: Tenant
    input_tokens: Tokens
    output_tokens: Tokens
    prefix_ids: tuple[BlockId, ...] | None = None
    block_tokens: Tokens | None = None
    answer_ids: tuple[BlockId, ...] = ()


def read_native(path: Path, lines: Iterable[Line]) -> Iterator[TraceRequest]:
    """Yield the requests of a trace in our own format.

    Raises: TraceError for a malformed line, more ids than the prompt or its answer has blocks, or a block
    size that differs from an earlier line's.
    """
    decoder = msgspec.json.Decoder(_Row)
    block_tokens = 0
    for line in lines:
        row = decode_row(decoder, path, line, ALLOWED)
        block_tokens = _check_blocks(path, line.number, row, block_tokens)
        yield TraceRequest(
            line=line.number,
            arrival_s=row.arrival_ms / 1000.0,
            tenant=row.tenant,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            prefix_ids=row.prefix_ids or (),
            block_tokens=row.block_tokens or 0,
            answer_ids=row.answer_ids,
        )


def _check_blocks(path: Path, number: int, row: _Row, known_block_tokens: int) -> int:
    """The trace's block size after this row; 0 while no row has named one."""
    if row.prefix_ids is None and row.block_tokens is None and not row.answer_ids:
        return known_block_tokens
    if row.prefix_ids is None or row.block_tokens is None:
        raise line_error(path, number, "prefix_ids and block_tokens are given together or not at all")
    if known_block_tokens not in (0, row.block_tokens):
        raise line_error(
            path,
            number,
            f"block_tokens is {row.block_tokens}; allowed is {known_block_tokens}, as in the lines before",
        )
    blocks = -(-row.input_tokens // row.block_tokens)
    if len(row.prefix_ids) > blocks:
        raise line_error(
            path,
            number,
            f"{len(row.prefix_ids)} prefix_ids for {row.input_tokens} input tokens in blocks of "
            f"{row.block_tokens}; allowed are at most {blocks}",
        )
    before = row.input_tokens // row.block_tokens
    most = (row.input_tokens + row.output_tokens) // row.block_tokens - before
    if row.answer_ids and (len(row.prefix_ids) < before or len(row.answer_ids) > most):
        raise line_error(
            path,
            number,
            f"{len(row.answer_ids)} answer_ids behind {len(row.prefix_ids)} prefix_ids; allowed are at most "
            f"{most}, behind {before} prefix_ids or more: full blocks of prompt and answer",
        )
    return row.block_tokens
