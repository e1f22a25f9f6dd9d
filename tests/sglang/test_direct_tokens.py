"""Tokens that come straight from SGLang's scheduler make the same answers as its own front end."""

import asyncio
import json

import pytest
from both_ways import ATTEMPTS, events

PROMPTS = ("Hello", "Tell me about the number 7. " * 5, "Ein Satz mit Umläuten: äöü. ", "数字七")
OPTIONS = {
    "greedy": {"temperature": 0, "max_tokens": 40, "ignore_eos": True},
    "sampled": {"temperature": 0.8, "top_k": 1, "max_tokens": 24},
    "one token": {"temperature": 0, "max_tokens": 1},
    "two tokens": {"temperature": 0, "max_tokens": 2, "ignore_eos": True},
    "usage": {"temperature": 0, "max_tokens": 9, "stream_options": {"include_usage": True}},
    "special tokens": {"temperature": 0, "max_tokens": 30, "ignore_eos": True, "skip_special_tokens": False},
    "regex": {"temperature": 0, "max_tokens": 30, "regex": "[a-z ]{20,25}"},
    "schema": {
        "temperature": 0,
        "max_tokens": 60,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "n",
                "schema": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "maxLength": 12}},
                    "required": ["city"],
                },
            },
        },
    },
}


def ask(path, prompt):
    if path == "/v1/completions":
        return {"prompt": prompt}
    return {"messages": [{"role": "user", "content": prompt}]}


async def said_alike(direct, http, path, body):
    """What both said once they said the same, event by event.

    SGLang's front end makes one event of several where it falls behind, on either way; that is the machine's
    doing, and so they are asked again. The texts must be the same each time.
    """
    for _ in range(ATTEMPTS):
        ours, theirs = await events(direct, path, body), await events(http, path, body)
        assert "".join(map(text_of, ours)) == "".join(map(text_of, theirs))
        if ours == theirs:
            return ours
    raise AssertionError(f"not once the same in {ATTEMPTS} times: {ours} and {theirs}")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_streams_are_the_same_event_by_event_when_tokens_come_directly(gateways, path):
    direct, http, receiver = gateways
    compared = 0
    for options in OPTIONS.values():
        for prompt in PROMPTS:
            body = ask(path, prompt) | options
            await said_alike(direct, http, path, body)
            compared += 1
    assert compared == len(OPTIONS) * len(PROMPTS)
    assert receiver.steps > 20 * len(PROMPTS)
    assert receiver.mismatches == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stop_text_is_never_sent_when_it_ends_the_answer(gateways, path):
    direct, http, _ = gateways
    full = ask(path, PROMPTS[1]) | {"temperature": 0, "max_tokens": 60, "ignore_eos": True}
    said = "".join(text_of(event) for event in await events(http, path, full))
    stop = next(said[at : at + 3] for at in range(8, len(said) - 3) if said[at : at + 3].isprintable())
    body = full | {"stop": [stop]}
    assert stop not in "".join(map(text_of, await said_alike(direct, http, path, body)))


def text_of(event):
    if not event.startswith("data: {"):
        return ""
    choices = json.loads(event.removeprefix("data: "))["choices"]
    if not choices:
        return ""
    return choices[0].get("text") or choices[0].get("delta", {}).get("content") or ""


async def test_texts_are_the_same_when_many_answers_come_together(gateways):
    direct, http, receiver = gateways
    bodies = [
        ask("/v1/completions", prompt * (1 + number % 3)) | {"temperature": 0, "max_tokens": 20 + number}
        for number, prompt in enumerate(PROMPTS * 6)
    ]

    async def texts(url):
        said = await asyncio.gather(*(events(url, "/v1/completions", body) for body in bodies))
        return ["".join(map(text_of, answer)) for answer in said]

    assert await texts(direct) == await texts(http)
    assert receiver.mismatches == 0
