"""Plans from a call what the emulated model will say: exact prompt length, exact output length, the text.

Everything about an answer but its timing is known when its request arrives.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

import msgspec
import numpy as np

from pdmuxd.engine.emulator.server.bodies import Call, Sampling
from pdmuxd.engine.emulator.server.filler import passage
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.tokenizer import (
    LONGEST_PIECE,
    TokenIds,
    block_keys,
    piece_ids,
    split,
    token_ids,
)

NATURAL_MEDIAN_TOKENS = 150
NATURAL_SIGMA = 0.8
"""Of the logarithm: nine natural lengths in ten lie between 40 and 560 tokens."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One prompt's answer. `pieces[i]` is the text of output token i as it stands in a JSON string: ASCII."""

    prompt_tokens: int
    block_keys: tuple[int, ...]
    answer_keys: tuple[int, ...]
    """Of the full blocks that the answer fills, for a later prompt that repeats it."""
    pieces: Sequence[bytes]
    finish_reason: str
    """`stop` or `length`."""
    matched_stop: str | None
    max_tokens: int
    """The limit that was in force."""


def plan(
    call: Call, prompt: str | list[int], *, block_tokens: int, max_context_tokens: int, position: int = 0
) -> Plan:
    """Plan the answer to one prompt, the one at `position` of its call.

    Raises: RequestError 400 if the prompt is empty, leaves no room in the context, or the limits conflict.
    """
    ids = _tokenize(prompt, call.prompt_param, max_context_tokens)
    room_tokens = max_context_tokens - len(ids)
    max_tokens = min(_limit(call.sampling), room_tokens)
    keys = block_keys(ids, block_tokens, call.salt)
    # Prompts of one call that are equal still get one text each.
    seed = (keys[-1] + call.sampling.seed + position) % 2**64
    tokens, reason = max_tokens, "length"
    if not call.sampling.ignore_eos:
        natural_tokens = max(natural_length(seed), call.sampling.min_tokens)
        if natural_tokens < max_tokens:
            tokens, reason = natural_tokens, "stop"
    if call.structure is None:
        pieces = passage(seed, tokens)
        matched = _apply_stops(pieces, call.sampling)
    else:
        said = _escaped(call.structure.text)
        pieces, matched = said[:max_tokens], None
        reason = "length" if len(said) > max_tokens else "stop"
    return Plan(
        prompt_tokens=len(ids),
        block_keys=keys,
        answer_keys=_answer_keys(ids, keys, pieces, block_tokens, call.salt),
        pieces=pieces,
        finish_reason=reason if matched is None else "stop",
        matched_stop=matched,
        max_tokens=max_tokens,
    )


def _escaped(text: str) -> list[bytes]:
    """A text's tokens as parts of a JSON string."""
    return [msgspec.json.encode(piece)[1:-1] for piece in split(text)]


def _answer_keys(
    ids: TokenIds, keys: Sequence[int], pieces: Sequence[bytes], block_tokens: int, salt: str
) -> tuple[int, ...]:
    """The KV of the last token is not computed. What a stop text cut short is repeated by nobody."""
    full = len(ids) // block_tokens
    filled = (len(ids) + len(pieces) - 1) // block_tokens - full
    if not filled:
        return ()
    rest = np.concatenate((ids[full * block_tokens :], piece_ids(pieces)))[: filled * block_tokens]
    return block_keys(rest, block_tokens, salt, behind=keys[full - 1] if full else None)


def natural_length(seed: int) -> int:
    """Tokens after which the model would stop by itself: lognormal, fixed by `seed`."""
    uniform = ((seed ^ (seed >> 32)) % 2**32 + 0.5) / 2**32
    return max(1, round(NATURAL_MEDIAN_TOKENS * math.exp(NATURAL_SIGMA * _NORMAL.inv_cdf(uniform))))


def _tokenize(prompt: str | list[int], param: str, max_context_tokens: int) -> TokenIds:
    if isinstance(prompt, list):
        ids = np.array(prompt, dtype=np.uint32)
    elif len(prompt) > LONGEST_PIECE * max_context_tokens:
        # Long enough to be refused without spending the loop's time on tokenizing it.
        raise _too_long(f"at least {len(prompt) // LONGEST_PIECE}", max_context_tokens, param)
    else:
        ids = token_ids(prompt, enough_tokens=max_context_tokens)
    if not len(ids):
        raise refuse(f"`{param}` is empty; it must have at least one token", param=param)
    if len(ids) >= max_context_tokens:
        length = f"at least {len(ids)}" if isinstance(prompt, str) else str(len(ids))
        raise _too_long(length, max_context_tokens, param)
    return ids


def _too_long(length: str, max_context_tokens: int, param: str) -> Exception:
    return refuse(
        f"the prompt has {length} tokens; this model's maximum context length is {max_context_tokens} "
        "tokens, of which at least 1 is for the answer",
        param=param,
        code="context_length_exceeded",
    )


def _limit(sampling: Sampling) -> int:
    if sampling.max_tokens is None:
        return max(sampling.default_max_tokens, sampling.min_tokens)
    if sampling.min_tokens > sampling.max_tokens:
        param = sampling.limit_param.replace("max_new", "min_new")
        param = param if param != sampling.limit_param else "min_tokens"
        raise refuse(
            f"`{param}` is {sampling.min_tokens}; it must not exceed `{sampling.limit_param}`, "
            f"{sampling.max_tokens}",
            param=param,
        )
    return sampling.max_tokens


def _apply_stops(pieces: list[bytes], sampling: Sampling) -> str | None:
    """End `pieces` with the token that completes the first stop text; the one that was found.

    The stop text itself is cut out, so the last pieces may be empty; they are tokens all the same.
    """
    if not sampling.stops:
        return None
    text = b"".join(pieces).decode("ascii")
    ends = list(accumulate(map(len, pieces)))
    earliest_end = ends[sampling.min_tokens - 2] + 1 if 2 <= sampling.min_tokens <= len(ends) else 0
    found: tuple[int, int, str] | None = None
    for stop in sampling.stops:
        start = text.find(stop, max(0, earliest_end - len(stop)))
        if start >= 0 and (found is None or start + len(stop) < found[0]):
            found = (start + len(stop), start, stop)
    if found is None:
        return None
    end, start, stop = found
    del pieces[bisect_left(ends, end) + 1 :]
    if not sampling.keep_stop:
        for i in range(bisect_left(ends, start + 1), len(pieces)):
            begin = ends[i] - len(pieces[i])
            pieces[i] = pieces[i][: max(0, start - begin)]
    return stop
