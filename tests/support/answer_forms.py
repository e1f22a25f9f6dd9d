"""Requests that ask for more than the likeliest text: a form of it, log probabilities, several answers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
from sglang_processes import KEY, TEXTS

REGEX = "(red|green|blue)-[0-9]{3}-(yes|no)"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "dark": {"type": "boolean"}},
    "required": ["colour", "dark"],
    "additionalProperties": False,
}
_FORMS: tuple[dict[str, Any], ...] = (
    {"regex": REGEX},
    {"json_schema": json.dumps(SCHEMA), "max_new_tokens": 64},
    {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
    {"n": 2},
    {"min_new_tokens": 10, "stop": "%"},
    {},
)
_OF_THE_BODY = ("return_logprob", "logprob_start_len", "top_logprobs_num")
_EVERY_S = 0.08
"""They overlap."""


async def ask_forms(base_url: str, *, key: str = KEY, rounds: int = 6) -> list[Any]:
    """What was answered to each form, again and again; the same of every engine of a model."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base_url, timeout=300, headers=headers) as client:
        asked = [_ask(client, number) for number in range(rounds * len(_FORMS))]
        return list(await asyncio.gather(*asked))


def check_forms(answers: list[Any]) -> None:
    """Each has the form that was asked for."""
    for number, answer in enumerate(answers):
        form = _FORMS[number % len(_FORMS)]
        texts = [text for text, *_ in answer]
        assert len(texts) == form.get("n", 1)
        if "regex" in form:
            assert re.fullmatch(REGEX, texts[0]), texts
        if "json_schema" in form:
            # A model that knows nothing may put blanks anywhere until it is cut off.
            assert re.match(r'\{\s*("colour"|$)', texts[0]), texts
        if "return_logprob" in form:
            assert len(answer[0][2]) > 24, "of the prompt as well"


def alike(answers: list[Any], others: list[Any]) -> bool:
    """The same texts that ended alike, with log probabilities to within a hundredth."""
    for ours, theirs in zip(answers, others, strict=True):
        for (text, why, ours_log), (other, because, theirs_log) in zip(ours, theirs, strict=True):
            if (text, why, len(ours_log)) != (other, because, len(theirs_log)):
                return False
            if any(abs(a - b) > 0.01 for a, b in zip(ours_log, theirs_log, strict=True)):
                return False
    return True


async def _ask(client: httpx.AsyncClient, number: int) -> Any:
    await asyncio.sleep(number * _EVERY_S)
    form = _FORMS[number % len(_FORMS)]
    sampling = {"temperature": 0, "max_new_tokens": 24} | {
        name: value for name, value in form.items() if name not in _OF_THE_BODY
    }
    body = {name: form[name] for name in _OF_THE_BODY if name in form}
    body |= {"text": f"{TEXTS[number % len(TEXTS)]}{number}", "sampling_params": sampling}
    answer = await client.post("/generate", json=body)
    assert answer.status_code == 200, answer.text[:300]
    said = answer.json()
    return [_told(one) for one in (said if isinstance(said, list) else [said])]


def _told(said: dict[str, Any]) -> tuple[str, str, list[float]]:
    """The text, why it ended, and log probabilities."""
    meta = said["meta_info"]
    given = [*(meta.get("input_token_logprobs") or ()), *(meta.get("output_token_logprobs") or ())]
    return said["text"], str(meta["finish_reason"]), [one[0] for one in given if one[0] is not None]
