"""The kinds of values that fields have, each with the check of its range."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.bounds import check_stops
from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import check_field, refuse_field, refuse_value

Check = Callable[[str, Raw, Limits], None]
"""Raises: RequestError 400 naming the field, or what in it is wrong."""
Object = dict[str, Raw]

INT32_MAX = 2**31 - 1
FLOAT32_MAX = 3.4e38
"""The engine computes in 32 bits: what is larger is infinite there."""
MAX_BIAS = 100.0
"""OpenAI's range of a logit bias is -100 to 100, and 100 already means always."""


def decoder(type_: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type expression
    """A decoder of JSON."""
    return msgspec.json.Decoder(type_)


def of_type(type_: Any) -> Check:  # noqa: ANN401 - a type expression
    """A value of this type, with msgspec's own constraints."""
    read = decoder(type_)

    def check(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
        check_field(param, value, read)

    return check


def number(least: float, most: float = FLOAT32_MAX) -> Check:
    """A number, or null."""
    return of_type(Annotated[float, Meta(ge=least, le=most)] | None)


def positive(most: float) -> Check:
    """A number above 0, or null."""
    return of_type(Annotated[float, Meta(gt=0, le=most)] | None)


def whole(least: int, most: int = INT32_MAX) -> Check:
    """A whole number, or null."""
    return of_type(Annotated[int, Meta(ge=least, le=most)] | None)


BOOL = of_type(bool | None)
TEXT = of_type(str | None)
NAME = of_type(Annotated[str, Meta(min_length=1)])
NAME_OF: msgspec.json.Decoder[str] = decoder(str)
OBJECT = of_type(Object | None)
OBJECTS = of_type(list[Object] | None)
TEXT_OR_OBJECT = of_type(str | Object | None)
_STOPS = decoder(str | list[str] | None)
_COUNT = decoder(Annotated[int, Meta(ge=0)] | None)
_COUNT_OR_BOOL = decoder(Annotated[int, Meta(ge=0)] | bool | None)
_COUNTS = decoder(Annotated[int, Meta(ge=0)] | list[Annotated[int, Meta(ge=0)]] | None)
_STARTS = decoder(Annotated[int, Meta(ge=-1)] | list[Annotated[int, Meta(ge=-1)]] | None)
_BIAS = decoder(dict[str, Annotated[float, Meta(ge=-MAX_BIAS, le=MAX_BIAS)]] | None)
_TOP_K = decoder(Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None)


def top_k(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """-1 for the whole vocabulary, or how many of the likeliest tokens."""
    if check_field(param, value, _TOP_K) == 0:
        raise refuse_value(param, f"-1, or 1 to {INT32_MAX}")


def stops(param: str, value: Raw, limits: Limits) -> None:
    """Texts that end the answer."""
    check_stops(check_field(param, value, _STOPS), limits.bounds, param=param)


def output_tokens(least: int) -> Check:
    """How many tokens an answer may have: no more than a context holds."""
    read = decoder(Annotated[int, Meta(ge=least)] | None)

    def check(param: str, value: Raw, limits: Limits) -> None:
        asked, most = check_field(param, value, read), limits.ranges.max_context_tokens
        if asked is not None and most is not None and asked > most:
            raise refuse_field(
                f"`{param}` is {asked}; this model's maximum context length is {most} tokens",
                param=param,
                code="context_length_exceeded",
            )

    return check


def _check_logprobs(param: str, counts: Iterable[int | None], limits: Limits) -> None:
    most = min(limits.bounds.max_logprobs, limits.ranges.vocab_size or INT32_MAX)
    for count in counts:
        if count is not None and count > most:
            raise refuse_value(param, f"at most {most} log probabilities for each token (data.max_logprobs)")


def logprobs(param: str, value: Raw, limits: Limits) -> None:
    """How many of the likeliest tokens log probabilities are told for."""
    _check_logprobs(param, (check_field(param, value, _COUNT),), limits)


def logprobs_or_false(param: str, value: Raw, limits: Limits) -> None:
    """The same, where clients also say `false` for none and `true` for those of the tokens alone."""
    given = check_field(param, value, _COUNT_OR_BOOL)
    _check_logprobs(param, (None if isinstance(given, bool) else given,), limits)


def logprobs_of_each(param: str, value: Raw, limits: Limits) -> None:
    """The same for one prompt, or for each of a batch."""
    given = check_field(param, value, _COUNTS)
    _check_logprobs(param, given if isinstance(given, list) else (given,), limits)


def start_of_each(param: str, value: Raw, limits: Limits) -> None:
    """The token of a prompt from which on its log probabilities are told; -1: none of them."""
    given, most = check_field(param, value, _STARTS), limits.ranges.max_context_tokens
    for start in given if isinstance(given, list) else (given,):
        if start is not None and most is not None and start > most:
            raise refuse_value(param, f"-1 to {most}")


@lru_cache(maxsize=64)
def _ids_decoder(vocab_size: int | None, depth: int, *, may_be_none: bool) -> msgspec.json.Decoder[Any]:
    highest = INT32_MAX if vocab_size is None else vocab_size - 1
    ids: Any = Annotated[int, Meta(ge=0, le=highest)]
    for _ in range(depth):
        ids = Annotated[list[ids], Meta(min_length=0 if may_be_none else 1)]
    return decoder(ids | None if may_be_none else ids)


def read_ids(param: str, value: Raw, limits: Limits, *, depth: int = 1, may_be_none: bool = False) -> Any:  # noqa: ANN401
    """Token ids of the model, in lists of lists for a `depth` of 2."""
    return check_field(param, value, _ids_decoder(limits.ranges.vocab_size, depth, may_be_none=may_be_none))


def stop_ids(param: str, value: Raw, limits: Limits) -> None:
    """Tokens that end the answer. The engine looks each up among the model's."""
    given = read_ids(param, value, limits, may_be_none=True) or ()
    if len(given) > limits.bounds.max_stops:
        raise refuse_value(param, f"at most {limits.bounds.max_stops} token ids (data.max_stops)")


def logprob_ids(param: str, value: Raw, limits: Limits, *, may_be_none: bool = True) -> None:
    """Tokens whose log probabilities are told: of one prompt, or of each of a batch."""
    is_batch = bytes(memoryview(value)[1:65]).lstrip().startswith(b"[")
    given = read_ids(param, value, limits, depth=2 if is_batch else 1, may_be_none=may_be_none) or ()
    _check_logprobs(param, map(len, given) if is_batch else (len(given),), limits)


def labels(param: str, value: Raw, limits: Limits) -> None:
    """The same where the answer consists of them."""
    logprob_ids(param, value, limits, may_be_none=False)


def bias(param: str, value: Raw, limits: Limits) -> None:
    """What is added to the logits of tokens, by their ids as texts."""
    highest = limits.ranges.vocab_size
    for key in check_field(param, value, _BIAS) or ():
        # A key such as "1_0" or " 5" is a number to Python, and to no other reader.
        if not (key.isascii() and key.isdigit() and len(key) < 11) or int(key) >= (highest or INT32_MAX):
            raise refuse_value(
                param, f"keys that are token ids, 0 to {(highest or INT32_MAX) - 1}, and not `{key[:20]}`"
            )
