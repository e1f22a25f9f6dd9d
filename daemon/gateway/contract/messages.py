"""Conversations: their form, and that nothing in them makes the engine's host fetch an address.

An engine that takes pictures loads whatever a part of a message names: an address in its own network, a file
of its host. A tenant sends pictures themselves, as `data:` URLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import check_field, refuse_field, refuse_value
from pdmuxd.daemon.gateway.contract.values import Object, decoder

_MEDIA = frozenset(
    {
        *("image", "image_url", "input_image", "video", "video_url", "input_video", "audio_url", "audio"),
        *("document", "file", "input_file", "computer_screenshot"),
    }
)
_PARTS_OF_CHAT = frozenset(
    {
        *("text", "thinking", "reasoning", "tool_reference"),
        *("image_url", "video_url", "audio_url", "input_audio"),
    }
)
"""Source: SGLang 0.5.23, `ChatCompletionMessageContentPart`. It names another place where one is unknown."""
_ADDRESSES = ("url", "image_url", "video_url", "audio_url", "file_url", "source")
"""Members of such a part that may hold an address."""
_DATA = "data:"


class _Turn(msgspec.Struct):
    role: str
    content: str | list[Raw] | None = None


class _FullTurn(msgspec.Struct):
    role: str
    content: str | list[Raw]


class _Item(msgspec.Struct):
    content: Raw = Raw(b"null")
    output: Raw = Raw(b"null")


class _Part(msgspec.Struct):
    type: str = ""
    text: Raw = Raw(b"null")
    content: Raw = Raw(b"null")


_TURNS = decoder(Annotated[list[_Turn], Meta(min_length=1)])
_FULL_TURNS = decoder(Annotated[list[_FullTurn], Meta(min_length=1)])
_INPUT = decoder(str | Annotated[list[_Item], Meta(min_length=1)])
_SYSTEM = decoder(str | list[Raw] | None)
_PART = decoder(_Part)
_RAWS = decoder(list[Raw])
_STRING = decoder(str)
_WHOLE = decoder(Object)
_ANYTHING = decoder(Any)


def chat(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """Messages of OpenAI's API; an assistant's may be without content."""
    for i, turn in enumerate(check_field(param, value, _TURNS)):
        at = f"{param}[{i}].content"
        if isinstance(turn.content, list):
            _check_parts(turn.content, at, known=_PARTS_OF_CHAT)
        elif turn.content is None and turn.role == "user":
            raise refuse_value(at, "a text or parts, since the turn is a user's")


def messages(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """Messages of Anthropic's API."""
    for i, turn in enumerate(check_field(param, value, _FULL_TURNS)):
        if isinstance(turn.content, list):
            _check_parts(turn.content, f"{param}[{i}].content")


def responses_input(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """A text, or items of the Responses API."""
    given = check_field(param, value, _INPUT)
    for i, item in enumerate(given if isinstance(given, list) else ()):
        for name, within in (("content", item.content), ("output", item.output)):
            if bytes(memoryview(within)[:1]) == b"[":
                _check_parts(check_field(f"{param}[{i}].{name}", within, _RAWS), f"{param}[{i}].{name}")


def system(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """The system prompt of Anthropic's API: a text or parts."""
    given = check_field(param, value, _SYSTEM)
    if isinstance(given, list):
        _check_parts(given, param)


def _check_parts(parts: list[Raw], param: str, *, known: frozenset[str] | None = None) -> None:
    for i, part in enumerate(parts):
        at = f"{param}[{i}]"
        read = check_field(at, part, _PART)
        if known is not None and read.type not in known:
            raise refuse_value(f"{at}.type", f"one of {', '.join(sorted(known))}")
        if known is not None and read.type == "text":
            check_field(f"{at}.text", read.text, _STRING)
        if read.type in _MEDIA:
            _check_media(part, at)
        elif bytes(memoryview(read.content)[:1]) == b"[":  # what a tool gave back
            _check_parts(check_field(f"{at}.content", read.content, _RAWS), f"{at}.content")


def _check_media(part: Raw, param: str) -> None:
    for name, value in check_field(param, part, _WHOLE).items():
        if name not in _ADDRESSES:
            continue
        for address in _addresses(check_field(f"{param}.{name}", value, _ANYTHING)):
            if not address.startswith(_DATA):
                raise refuse_field(
                    f"`{param}.{name}` is an address; it must be a `data:` URL with the content itself, "
                    "since engines fetch nothing for clients",
                    param=f"{param}.{name}",
                    code="unsupported",
                )


def _addresses(value: object) -> Iterator[str]:
    """The texts of a part's member that are read as addresses: itself, or its `url`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        url = value.get("url")
        if url is not None:
            yield str(url)
