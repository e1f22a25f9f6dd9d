"""Slices of a prompt's tokens, in which a decoder layer is called one after the other.

A layer of a prompt of 87,000 tokens takes 0.2 to 0.3 s, and nothing can go between its beginning and its
end. A slice attends to the KV that those before it have written, as a chunk of a prompt does, but within one
layer: what goes to the next layer is as ever, and a prefill can be set aside between any two slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, NamedTuple, cast

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.types import slice_bounds
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.requests import ForwardBatch

_wanted = ContextVar("pdmuxd_slices", default=1)
"""For the forward that begins next. SGLang's own calls lie between who knows it and who needs it."""


@contextmanager
def cut_into(slices: int) -> Iterator[None]:
    """A forward that begins meanwhile calls each layer in so many slices."""
    token = _wanted.set(slices)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> int:
    """Slices of the forward that begins."""
    return _wanted.get()


class TokenSlice(NamedTuple):
    """Some tokens of a prompt, and SGLang's batch of them."""

    start: int
    end: int
    batch: ForwardBatch

    def of(self, value: object, tokens: int) -> object:
        """What of an argument of a layer belongs to these tokens, of so many: of a tensor, the part along its
        first dimension of that size; else all of it."""
        if isinstance(value, torch.Tensor):
            along = next((at for at, size in enumerate(value.shape) if size == tokens), None)
            return value if along is None else value.narrow(along, self.start, self.end - self.start)
        if isinstance(value, tuple):
            return tuple(self.of(each, tokens) for each in value)
        return self.batch if isinstance(value, type(self.batch)) else value


def slices_of(batch: ForwardBatch, count: int) -> tuple[TokenSlice, ...]:
    """A batch of one prompt in so many parts. Raises: EngineError if it has several."""
    if batch.batch_size != 1:
        raise EngineError(f"a batch of {batch.batch_size} prompts was to be cut into slices of tokens")
    tokens = batch.extend_seq_lens_cpu[0]
    bounds = (slice_bounds(tokens, count, number) for number in range(count))
    return tuple(TokenSlice(start, end, _part(batch, tokens, start, end)) for start, end in bounds)


def _part(batch: ForwardBatch, tokens: int, start: int, end: int) -> ForwardBatch:
    whole, part = cast(Any, batch), cast(Any, copy(batch))
    part.forward_mode = sglang().ForwardMode.EXTEND
    behind, prefix = tokens - end, whole.extend_prefix_lens_cpu[0]
    for name in ("input_ids", "out_cache_loc", "out_cache_loc_virtual"):
        value = getattr(whole, name)
        if value is not None:
            setattr(part, name, value[start:end])
    part.positions = whole.positions[..., start:end]
    if whole.kv_loc_plan is not None:
        part.kv_loc_cols = whole.kv_loc_plan.cols_slice(whole.kv_loc_cols, slice(start, end))
    part.seq_lens = whole.seq_lens - behind
    part.seq_lens_cpu = whole.seq_lens_cpu - behind
    part.seq_lens_sum = whole.seq_lens_sum - behind
    part.extend_num_tokens = end - start
    part.extend_seq_lens = torch.full_like(whole.extend_seq_lens, end - start)
    part.extend_seq_lens_cpu = [end - start]
    part.extend_prefix_lens = whole.extend_prefix_lens + start
    part.extend_prefix_lens_cpu = [prefix + start]
    return cast(ForwardBatch, part)


def called_in_slices(
    layer: Callable[..., object],
    whole: ForwardBatch,
    slices: Sequence[TokenSlice],
    begin: Callable[[TokenSlice], None],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """What a layer returns for all tokens, called for one slice after the other, each after `begin`."""
    tokens, found = slices[-1].end, list[object]()
    stream = getattr(whole, "residual_stream", None)
    handle, given = None, list[object]()
    if stream is not None:
        handle = next((each for each in (*args, *kwargs.values()) if _is_of(each, stream)), None)
        given = _divided(stream, handle, slices)
    for number, part in enumerate(slices):

        def own(value: object, part: TokenSlice = part, number: int = number) -> object:
            return given[number] if handle is not None and value is handle else part.of(value, tokens)

        begin(part)
        found.append(layer(*map(own, args), **{name: own(value) for name, value in kwargs.items()}))
    return _joined(found) if stream is None else _united(found, whole, slices)


def _joined(parts: list[object]) -> object:
    """One value of those that a layer returned for each slice."""
    if isinstance(parts[0], tuple):
        several = cast("list[tuple[object, ...]]", parts)
        return tuple(_joined(list(each)) for each in zip(*several, strict=True))
    if isinstance(parts[0], torch.Tensor) and parts[0].dim():
        return torch.cat(cast("list[torch.Tensor]", parts))
    return parts[-1]


# SGLang keeps the residual of many models beside their batch, in a stream that knows the hidden states it
# belongs to. Its two-batch overlap divides and unites that in the same way.


def _is_of(value: object, stream: Any) -> bool:  # noqa: ANN401 - SGLang's ResidualStream
    """Whether these are the hidden states that a stream of residuals knows."""
    pending = stream.pending
    if pending is None:
        return stream.residual is not None and value is stream.residual
    return getattr(value, "contribution", None) is pending or (value is not None and value is pending.value)


def _divided(stream: Any, handle: object, slices: Sequence[TokenSlice]) -> list[object]:  # noqa: ANN401
    """Give each slice its part of a stream; the hidden states that the parts know."""
    kind, found = type(stream), list[object]()
    if handle is None:
        if stream.pending is not None or stream.residual is not None:
            raise EngineError("a layer was called without the hidden states that its residual belongs to")
        for part in slices:
            cast(Any, part.batch).residual_stream = kind()
        return []
    update = None if stream.pending is None else stream.pending.update
    hidden, residual = stream.export(handle)
    for part in slices:
        rows = slice(part.start, part.end)
        own = None if residual is None else residual[rows]
        known, cast(Any, part.batch).residual_stream = kind.from_handoff(hidden[rows], own, update)
        found.append(known)
    return found


def _united(found: list[object], whole: ForwardBatch, slices: Sequence[TokenSlice]) -> object:
    """The hidden states of all slices, and one stream of their residuals."""
    hidden, residuals, update, kind = list[torch.Tensor](), list[torch.Tensor](), None, None
    for said, part in zip(found, slices, strict=True):
        batch = cast(Any, part.batch)
        stream, batch.residual_stream = batch.residual_stream, None
        kind, update = type(stream), None if stream.pending is None else stream.pending.update
        own, residual = stream.export(said)
        hidden.append(own)
        if residual is not None:
            residuals.append(residual)
    together = torch.cat(residuals) if residuals else None
    known, cast(Any, whole).residual_stream = cast(Any, kind).from_handoff(
        torch.cat(hidden), together, update
    )
    return cast(object, known)
