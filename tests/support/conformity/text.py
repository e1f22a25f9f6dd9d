"""Requests of /v1/completions, /generate, /v1/score, /tokenize, /detokenize and of the models."""

from __future__ import annotations

import json
from typing import Any

from conformity.case import DETOKENIZE, GENERATE, MODEL, MODELS, SCORE, TEXT, TOKENIZE, Case, cases_of
from conformity.chat import CITY, FORMAT, LONG, SAY, TOOL, USAGE

PROMPT = "Say something."
BASE: dict[str, Any] = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
STREAM = {"stream": True}
OWN: dict[str, Any] = {"text": PROMPT, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}


def params(**more: Any) -> dict[str, Any]:
    """`sampling_params` of /generate."""
    return {"sampling_params": {"max_new_tokens": 4, "temperature": 0, **more}}


COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "streamed": STREAM,
    "streamed with usage": USAGE,
    "no max_tokens": {"max_tokens": ..., "stop": None, "ignore_eos": True},
    "several texts": {"prompt": ["one", "two"]},
    "several texts streamed": {"prompt": ["one", "two"], **USAGE},
    "token ids": {"prompt": [5, 6, 7]},
    "several lists of token ids": {"prompt": [[5, 6], [7]]},
    "n": {"n": 2},
    "n of several": {"prompt": ["one", "two"], "n": 2},
    "best_of": {"best_of": 2},
    "best_of and n": {"best_of": 2, "n": 2},
    "echo": {"echo": True, "begins_": PROMPT},
    "echo streamed": {"echo": True, "begins_": PROMPT, **STREAM},
    "echo of token ids": {"echo": True, "prompt": [5, 6, 7]},
    "echo with logprobs": {"echo": True, "logprobs": 1, "begins_": PROMPT},
    "suffix": {"suffix": " The end."},
    "logprobs": {"logprobs": 2},
    "logprobs of 0": {"logprobs": 0},
    "logprobs streamed": {"logprobs": 2, **STREAM},
    "logprobs true": {"logprobs": True},
    "stop": {"stop": ["\u2603"]},
    "seed": {"seed": 7},
    "logit_bias": {"logit_bias": {"5": -100}},
    "json_schema": {"response_format": FORMAT, "max_tokens": 200, "schema_": CITY},
    "schema as text": {"json_schema": json.dumps(CITY), "max_tokens": 200, "schema_": CITY},
    "regex": {"regex": "(yes|no)", "max_tokens": 20},
    "user": {"user": "me"},
}
COMPLETIONS_REFUSED: dict[str, dict[str, Any]] = {
    "prompt missing": {"prompt": ...},
    "prompt empty": {"prompt": ""},
    "prompt of empty list": {"prompt": []},
    "prompt is a number": {"prompt": 5},
    "prompt of a foreign token": {"prompt": [5, 99_999_999]},
    "prompt of token below 0": {"prompt": [5, -1]},
    "prompt of mixed types": {"prompt": ["x", 5]},
    "model unknown": {"model": "no-such-model"},
    "max_tokens is 0": {"max_tokens": 0},
    "max_tokens beyond the context": {"max_tokens": 10_000_000},
    "logprobs is huge": {"logprobs": 1000},
    "logprobs below 0": {"logprobs": -1},
    "n is 0": {"n": 0},
    "best_of is 0": {"best_of": 0},
    "best_of below n": {"best_of": 1, "n": 2},
    "best_of streamed": {"best_of": 2, **STREAM},
    "echo is a text": {"echo": "yes"},
    "top_p is a text": {"top_p": "x"},
    "json_schema is no JSON": {"json_schema": "{"},
    "too long": {"prompt": LONG},
    "too many token ids": {"prompt": [5] * 140_000},
}
GENERATED: dict[str, dict[str, Any]] = {
    "plain": {},
    "streamed": STREAM,
    "token ids": {"text": ..., "input_ids": [5, 6, 7]},
    "several texts": {"text": ["one", "two"]},
    "no params": {"sampling_params": {"max_new_tokens": 2, "ignore_eos": True}},
    "n": params(n=2),
    "stop": params(stop=["\u2603"]),
    "json_schema": {**params(json_schema=json.dumps(CITY), max_new_tokens=200), "schema_": CITY},
    "regex": params(regex="(yes|no)", max_new_tokens=20),
    "max_new_tokens of 0": params(max_new_tokens=0),
    "logprobs": {"return_logprob": True},
    "logprobs of several": {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0},
    "logprobs in text": {"return_logprob": True, "return_text_in_logprobs": True},
    "several params": {
        "text": ["one", "two"],
        "sampling_params": [{"max_new_tokens": 2, "top_k": 1}, {"max_new_tokens": 2, "top_k": 1}],
    },
}
GENERATED_REFUSED: dict[str, dict[str, Any]] = {
    "neither text nor ids": {"text": ...},
    "both text and ids": {"input_ids": [5]},
    "text is a number": {"text": 5},
    "foreign token": {"text": ..., "input_ids": [5, 99_999_999]},
    "top_p above 1": params(top_p=2),
    "min_new_tokens above max": params(min_new_tokens=9),
    "max_new_tokens below 0": params(max_new_tokens=-1),
    "input_embeds": {"text": ..., "input_embeds": [[0.5]]},
    "custom_logit_processor": {"custom_logit_processor": "x"},
    "sampling_params is a text": {"sampling_params": "x"},
    "too long": {"text": LONG},
}
TOKENIZED: dict[str, dict[str, Any]] = {
    "text": {},
    "without model": {"model": ...},
    "several texts": {"prompt": ["one", "two"]},
    "empty text": {"prompt": ""},
    "conversation": {"prompt": ..., "messages": SAY},
    "conversation with tools": {"prompt": ..., "messages": SAY, "tools": [TOOL]},
    "no special tokens": {"add_special_tokens": False},
    "neither": {"prompt": ...},
    "both": {"messages": SAY},
    "a number": {"prompt": 5},
    "unknown model": {"model": "no-such-model"},
}
DETOKENIZED: dict[str, dict[str, Any]] = {
    "one list": {},
    "several lists": {"tokens": [[5, 6], [7]]},
    "special tokens kept": {"skip_special_tokens": False},
    "empty": {"tokens": []},
    "missing": {"tokens": ...},
    "foreign token": {"tokens": [99_999_999]},
    "a text": {"tokens": "x"},
}

SCORED: dict[str, dict[str, Any]] = {
    "items": {},
    "one item": {"items": " Bern"},
    "token ids": {"query": [5, 6], "items": [[7], [8, 9]]},
    "no query": {"query": ...},
    "item first": {"item_first": True},
    "softmax": {"apply_softmax": True, "temperature": 0.5},
    "log probabilities": {"return_token_logprobs": True},
    "labels of each": {"label_token_ids": [[5], [6, 7]]},
    "twice the same label": {"label_token_ids": [5, 5]},
    "too few labels": {"label_token_ids": [[5]]},
    "temperature alone": {"temperature": 0.5},
    "no labels": {"label_token_ids": ...},
    "foreign label": {"label_token_ids": [99_999_999]},
    "no items": {"items": []},
    "pooled": {"return_pooled_hidden_states": True},
    "unknown model": {"model": "no-such-model"},
}
SCORE_BASE: dict[str, Any] = {
    "model": MODEL,
    "query": "The capital is",
    "items": [" Bern", " Rome"],
    "label_token_ids": [5, 6],
}


def cases() -> list[Case]:
    """All of them."""
    return [
        *cases_of("completion", TEXT, BASE, COMPLETIONS),
        *cases_of("completion refused", TEXT, BASE, COMPLETIONS_REFUSED),
        *cases_of("generate", GENERATE, OWN, GENERATED),
        *cases_of("generate refused", GENERATE, OWN, GENERATED_REFUSED),
        *cases_of("score", SCORE, SCORE_BASE, SCORED),
        *cases_of("tokenize", TOKENIZE, {"model": MODEL, "prompt": PROMPT}, TOKENIZED),
        *cases_of("detokenize", DETOKENIZE, {"model": MODEL, "tokens": [5, 6]}, DETOKENIZED),
        Case(name="models: list", path=MODELS, method="GET"),
        Case(name="models: one", path=f"{MODELS}/{MODEL}", method="GET"),
        Case(name="models: unknown", path=f"{MODELS}/nobody", method="GET"),
        Case(
            name="models: of Anthropic",
            path=MODELS,
            method="GET",
            headers={"anthropic-version": "2023-06-01"},
        ),
        Case(
            name="models: one of Anthropic",
            path=f"{MODELS}/{MODEL}",
            method="GET",
            headers={"anthropic-version": "2023-06-01"},
        ),
        Case(name="models: posted", path=MODELS, body={}),
        Case(name="path unknown", path="/v1/nothing", body={}),
        Case(name="wrong method", path=TEXT, method="GET"),
        Case(name="no JSON", path=TEXT, body="{"),
        Case(name="no object", path=TEXT, body="[]"),
        Case(name="no body", path=TEXT, body=""),
        *(
            Case(name=f"{name} on {path}", path=path, body=body, headers={"Authorization": key})
            for name, key in (("wrong key", "Bearer pdm_wrong"), ("no key", None))
            for path, body in ((TEXT, BASE), (GENERATE, OWN))
        ),
    ]
