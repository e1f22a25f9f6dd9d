"""How much one request may ask for, and how many places under the limits it takes.

A body is text of the client's choice: parsing it makes an object of each value, and the engine works on each
prompt, choice and stop text. All of these are counted and bounded before they cost anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdmuxd.engine.core.errors import RequestError

LARGE_BODY_BYTES = 256 * 1024
"""A body up to this size is parsed within some 10 ms, whatever is in it. In a larger one values are counted
first."""
MAX_STOP_CHARS = 1024
_QUOTE, _NODES = ord('"'), b"{[:"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """The settings of the same names in `[data]`."""

    max_outputs: int = 128
    max_stops: int = 64
    max_prompt_tokens: int = 1_048_576
    max_body_values: int = 50_000
    max_logprobs: int = 20


def count_outputs(prompts: int, choices: int | Sequence[int]) -> int:
    """How many answers a request makes, which is the number of places that it takes.

    `choices` is `n`, or one `n` for each prompt of a batch; one that is missing counts as 1.
    """
    if isinstance(choices, int):
        return prompts * choices
    return sum(choices) + max(0, prompts - len(choices))


def check_values(body: bytes, bounds: RequestBounds) -> None:
    """Refuse a large body that consists of more values than a request needs. Costs no object per value.

    Raises: RequestError 400.
    """
    if len(body) <= LARGE_BODY_BYTES:
        return
    # Most large bodies are one long text. What is counted here may stand in a text, so it may be too many.
    most = bounds.max_body_values
    commas = bounds.max_prompt_tokens + most
    if (
        sum(body.count(node) for node in _NODES) <= most
        and body.count(b'"') <= 2 * most
        and body.count(b",") <= commas
    ):
        return
    nodes, texts, separators = _outside_texts(body)
    if nodes > most or texts > most:
        raise _refuse(
            f"the body has more than {most} keys, lists, objects and texts (data.max_body_values)",
            code="too_many_values",
        )
    if separators > commas:
        raise _refuse(
            f"the body has more than {bounds.max_prompt_tokens} token ids (data.max_prompt_tokens)",
            code="too_many_tokens",
        )


def check_stops(stop: str | Sequence[str] | None, bounds: RequestBounds, *, param: str) -> None:
    """Raises: RequestError 400 for too many stop texts, or one that is too long."""
    stops = (stop,) if isinstance(stop, str) else stop or ()
    if len(stops) > bounds.max_stops:
        raise _refuse(
            f"`{param}` has {len(stops)} texts; allowed are {bounds.max_stops} (data.max_stops)", param=param
        )
    if any(len(each) > MAX_STOP_CHARS for each in stops):
        raise _refuse(f"a text of `{param}` is longer than {MAX_STOP_CHARS} characters", param=param)


def check_outputs(outputs: int, bounds: RequestBounds, *, param: str) -> None:
    """Raises: RequestError 400 for more answers than one request may ask for."""
    if outputs > bounds.max_outputs:
        raise _refuse(
            f"prompts times `n` make {outputs} answers; allowed are {bounds.max_outputs} (data.max_outputs)",
            param=param,
        )


def _outside_texts(body: bytes) -> tuple[int, int, int]:
    """Count, without parsing: keys, lists and objects; texts; commas. What stands inside of texts does not
    count."""
    # A backslash stands only in texts; without the escaped ones every quotation mark opens or closes one.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    characters = np.frombuffer(plain, dtype=np.uint8)
    quotes = characters == _QUOTE
    outside = characters[~np.logical_xor.accumulate(quotes)].tobytes()
    nodes = sum(outside.count(node) for node in _NODES)
    return nodes, int(np.count_nonzero(quotes)) // 2, outside.count(b",")


def _refuse(message: str, *, param: str | None = None, code: str = "invalid_value") -> RequestError:
    return RequestError(message, status=400, code=code, param=param)
