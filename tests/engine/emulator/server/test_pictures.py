"""Pictures in a conversation are counted by their size, in every API that takes them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from pdmuxd.engine.emulator.server.pictures import (
    MOST_TOKENS,
    UNREADABLE_TOKENS,
    of_content,
    tokens_of_picture,
)
from pdmuxd.engine.emulator.server.tokenizer import split

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def png(wide: int, high: int, end: bytes = b"") -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", wide, high) + end


def gif(wide: int, high: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", wide, high)


def jpeg(wide: int, high: int) -> bytes:
    head = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"\0" * 14
    return head + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, high, wide) + b"\0" * 10


@pytest.mark.parametrize("kind", [png, gif, jpeg])
def test_a_picture_takes_a_token_for_each_patch(kind: Any) -> None:
    assert tokens_of_picture(kind(280, 560)) == 10 * 20
    assert tokens_of_picture(kind(1, 1)) == 1
    assert tokens_of_picture(kind(60_000, 60_000)) == MOST_TOKENS


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\0\0\xff\xe0", b"GIF89a", png(9, 9)[:20], b"RIFF"]
)
def test_a_picture_without_a_size_is_counted_as_a_middling_one(data: bytes) -> None:
    assert tokens_of_picture(data) == UNREADABLE_TOKENS


def test_the_text_of_a_picture_has_its_tokens_and_differs_from_anothers() -> None:
    one, other = (of_content(base64.b64encode(png(280, 280, end)).decode()) for end in (b"a", b"b"))
    assert len(split(one)) == len(split(other)) == 100
    assert one != other


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_picture_is_counted_in_each_api(server: Any, path: str) -> None:
    data = base64.b64encode(png(280, 280)).decode()
    url = f"data:image/png;base64,{data}"
    part = {
        CHAT: {"type": "image_url", "image_url": {"url": url}},
        RESPONSES: {"type": "input_image", "image_url": url},
        MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    }[path]

    async def tokens(*parts: Any) -> int:
        name = "input" if path == RESPONSES else "messages"
        limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
        text = {"type": "input_text" if path == RESPONSES else "text", "text": "What is it?"}
        body = {name: [{"role": "user", "content": [text, *parts]}], limit: 1}
        answer = await server.post(path, **body)
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        cached = usage.get("cache_read_input_tokens", 0)
        return int(usage.get("prompt_tokens", usage.get("input_tokens")) + cached)

    assert await tokens(part) - await tokens() in (100, 101), "and perhaps the line between them"


@pytest.mark.parametrize(
    "url", ["http://x/y.png", "data:text/plain;base64,eA==", "data:image/png;base64,?", ""]
)
async def test_what_is_no_picture_is_refused_by_its_place(server: Any, url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    answer = await server.post(CHAT, messages=[{"role": "user", "content": [part]}])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[0].content[0]")
