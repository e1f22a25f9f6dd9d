"""Prompts: texts or token ids, one or several."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import check_field, refuse_field
from pdmuxd.daemon.gateway.contract.values import decoder, read_ids

_Text = Annotated[str, Meta(min_length=1)]
"""A tokenizer that adds nothing makes no token of an empty text, and SGLang's scheduler ends on that."""
_TEXT = decoder(_Text)
_TEXTS = decoder(Annotated[list[_Text], Meta(min_length=1)])
_ANY_TEXT = decoder(str)
_ITEMS = decoder(_Text | Annotated[list[_Text | list[int]], Meta(min_length=1)])
_ANY_TEXTS = decoder(str | Annotated[list[str], Meta(min_length=1)])
_NULL = b"null"


def prompt_of_completion(param: str, value: Raw, limits: Limits) -> None:
    """A text, token ids, or several of either."""
    count_prompts(param, value, limits)


def text_of_generate(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """A text, or several; null where the prompt is given as ids."""
    if bytes(value) != _NULL:
        check_field(param, value, _TEXTS if _head(value).startswith(b"[") else _TEXT)


def texts(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """A text, or several; each may be empty."""
    if bytes(value) != _NULL:
        check_field(param, value, _ANY_TEXTS)


def ids_of_generate(param: str, value: Raw, limits: Limits) -> None:
    """Token ids, or several lists of them; null where the prompt is given as text."""
    if bytes(value) != _NULL:
        _checked_ids(param, value, limits, is_batch=_head(value).startswith(b"[["))


def query_of_score(param: str, value: Raw, limits: Limits) -> None:
    """What stands before each item: a text or token ids, either of which may be empty."""
    if bytes(value) in (_NULL, b"[]"):
        return
    if _head(value).startswith(b"["):
        _checked_ids(param, value, limits, is_batch=False)
    else:
        check_field(param, value, _ANY_TEXT)


def items_of_score(param: str, value: Raw, limits: Limits) -> None:
    """A text, or several; or several lists of token ids."""
    head = _head(value)
    if head.startswith(b"[") and not head.startswith((b"[[", b'["')):
        check_field(param, value, _ITEMS)
    count_prompts(param, value, limits)


def ids_of_chat(param: str, value: Raw, limits: Limits) -> None:
    """The prompt of a conversation as token ids, in place of its rendered messages."""
    if bytes(value) != _NULL:
        _checked_ids(param, value, limits, is_batch=False)


def count_prompts(param: str, value: Raw, limits: Limits) -> int:
    """How many prompts a value holds. Raises: RequestError 400 if it holds none, or what is no prompt."""
    head = _head(value)
    if head.startswith(b"[["):
        return _checked_ids(param, value, limits, is_batch=True)
    if head.startswith(b'["'):
        return len(check_field(param, value, _TEXTS))
    if head.startswith(b"["):
        return _checked_ids(param, value, limits, is_batch=False)
    check_field(param, value, _TEXT)
    return 1


def number_of_prompts(value: Raw) -> int:
    """The same of a value that was checked, without reading the numbers in it."""
    return len(_RAWS.decode(value)) if is_list_of_prompts(value) else 1


def is_list_of_prompts(value: Raw) -> bool:
    """Whether it holds several prompts, or a list of one: such a request is a batch to the engine."""
    return _head(value).startswith((b"[[", b'["'))


_RAWS: msgspec.json.Decoder[list[Any]] = decoder(list[Raw])


def _checked_ids(param: str, value: Raw, limits: Limits, *, is_batch: bool) -> int:
    """The number of lists."""
    most = limits.ranges.max_context_tokens
    given = read_ids(param, value, limits, depth=2 if is_batch else 1)
    for i, ids in enumerate(given if is_batch else (given,)):
        if most is not None and len(ids) >= most:
            at = f"{param}[{i}]" if is_batch else param
            raise refuse_field(
                f"`{at}` has {len(ids)} tokens; this model's maximum context length is {most} tokens, "
                "of which at least 1 is for the answer",
                param=at,
                code="context_length_exceeded",
            )
    return len(given) if is_batch else 1


def _head(value: Raw) -> bytes:
    """Which form a prompt takes shows in its first characters."""
    return bytes(memoryview(value)[:64]).translate(None, b" \t\r\n")
