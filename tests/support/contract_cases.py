"""Requests that know the contract: each field of each path at, inside and beyond its range."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pdmuxd.daemon.gateway.contract.tables import REFUSED, SAMPLING_PARAMS, TABLES
from pdmuxd.daemon.gateway.routes import ROUTES, Kind

INT64 = 2**63
PATHS = {route.kind: route.path for route in ROUTES.values() if route.kind in TABLES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request."""

    kind: Kind
    field: str
    """With `sampling_params.` in front where it stands there."""
    value: Any
    is_good: bool
    """Whether the contract lets it pass."""
    body: Mapping[str, Any]

    @property
    def path(self) -> str:
        return PATHS[self.kind]


_TURNS = [{"role": "user", "content": "say something"}]
_BASES: Mapping[Kind, Mapping[str, Any]] = {
    Kind.CHAT: {"messages": _TURNS, "max_tokens": 3},
    Kind.COMPLETION: {"prompt": "say something", "max_tokens": 3},
    Kind.GENERATE: {"text": "say something", "sampling_params": {"max_new_tokens": 3}},
    Kind.RESPONSES: {"input": "say something", "max_output_tokens": 16},
    Kind.MESSAGES: {"messages": _TURNS, "max_tokens": 3},
}
_WRONG_BOOL = ("yes", 2, [], {})
_WRONG_TEXT = (5, [1], {})
_WRONG_OBJECT = (5, "x", [1])
_WRONG_NUMBER = ("1", [], {}, -1e39, 1e39)
_PICTURE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x"}}
_FILE = {"type": "image_url", "image_url": {"url": "file:///etc/hostname"}}


def _values(vocab: int, context: int) -> Mapping[str, tuple[Sequence[Any], Sequence[Any]]]:
    """By field, values that pass and values that do not, whatever the path."""
    beyond = (vocab, vocab + 1, 2**31, 2**32, INT64, 2**70, -1, -5)
    ids = ([[each] for each in (0, 1, vocab - 1)], [[5, each] for each in beyond] + [["a"], [1.5], "x"])
    numbers = {
        "temperature": ((0, 0.5, 2), (-0.1, -1, *_WRONG_NUMBER)),
        "top_p": ((0.01, 0.5, 1), (0, 1.01, -1, *_WRONG_NUMBER)),
        "min_p": ((0, 0.5, 1), (-0.1, 1.01, *_WRONG_NUMBER)),
        "frequency_penalty": ((-2, 0, 2), (-2.1, 2.1, *_WRONG_NUMBER)),
        "presence_penalty": ((-2, 0, 2), (-2.1, 2.1, *_WRONG_NUMBER)),
        "repetition_penalty": ((0.5, 1, 2), (0, -1, 2.1, *_WRONG_NUMBER)),
    }
    seeds = ((-INT64, 0, 7, INT64 - 1), (INT64, -INT64 - 1, 1.5, "1"))
    outputs = ((1, 3), (-1, context + 1, INT64, 1.5, "3", []))
    choices = ((1, 2), (0, -1, 10_000, INT64, 1.5, "2"))
    logprobs = ((0, 1, 20), (-1, 21, vocab, 100_000, INT64, 1.5, "1"))
    flags = dict.fromkeys(
        (
            *("no_stop_trim", "skip_special_tokens", "return_token_ids", "return_cached_tokens_details"),
            *("parallel_tool_calls", "separate_reasoning", "stream_reasoning", "return_prompt_token_ids"),
            *("return_meta_info", "echo", "return_text_in_logprobs", "spaces_between_special_tokens"),
            *("stream", "ignore_eos"),
        ),
        ((True, False, None), _WRONG_BOOL),
    )
    return {
        **numbers,
        **flags,
        "top_k": ((-1, 1, 40, 2**31 - 1), (0, -2, 2**31, INT64, 2**70, 1.5, "4")),
        "seed": seeds,
        "sampling_seed": seeds,
        "max_tokens": outputs,
        "max_completion_tokens": outputs,
        "max_output_tokens": ((16, 20), outputs[1]),
        "max_new_tokens": ((0, *outputs[0]), outputs[1]),
        "min_tokens": ((0, 1), outputs[1]),
        "min_new_tokens": ((0, 1), outputs[1]),
        "n": choices,
        "best_of": ((1, 2), choices[1]),
        "top_logprobs": logprobs,
        "top_logprobs_num": logprobs,
        "logprob_start_len": ((-1, 0, 1), (-2, -100, context + 1, INT64, "0")),
        "token_ids_logprob": ids,
        "stop_token_ids": (([], *ids[0]), ids[1]),
        "stop": (("x", ["x", "yy"], None), (5, [5], ["x"] * 65, "x" * 1025)),
        "stop_sequences": ((["x", "yy"], None), (5, [5], ["x"] * 65)),
        "logit_bias": (
            ({}, {"0": 1}, {str(vocab - 1): -100}),
            (
                {str(vocab): 1},
                {"-1": 1},
                {"99999999999": 1},
                {"a": 1},
                {"1_0": 1},
                {" 5": 1},
                {"1": 101},
                [1],
            ),
        ),
        "regex": (("a+",), _WRONG_TEXT),
        "ebnf": (('root ::= "a"',), _WRONG_TEXT),
        "user": (("me", None), _WRONG_TEXT),
        "instructions": (("be short", None), _WRONG_TEXT),
        "response_format": (({"type": "json_object"}, None), _WRONG_OBJECT),
        "tools": (([], None), (5, "x", {}, [1])),
        "chat_template_kwargs": (
            ({}, {"enable_thinking": False}, None),
            ({"chat_template": "{{ 1 }}"}, {"messages": []}, {"tokenize": False}, {"a": {"b": 1}}, 5),
        ),
        "metadata": (({"a": "b"}, None), _WRONG_OBJECT),
    }


def _of_path(kind: Kind, vocab: int, context: int) -> Mapping[str, tuple[Sequence[Any], Sequence[Any]]]:
    ids = [[5, each] for each in (vocab, 99_999_999, 2**40, INT64, -1)]
    turns = [[{"role": "user", "content": [part]}] for part in (_PICTURE, _FILE)]
    if kind is Kind.COMPLETION:
        good = ("x", ["x", "y"], [5], [[5], [vocab - 1]])
        return {
            "prompt": (good, (*ids, "", ["x", ""], [], [[]], [[5], []], {}, 5, [1.5], [0] * context)),
            "logprobs": ((0, 1, 20, None), (-7, 21, 100_000, INT64, "x")),
        }
    if kind is Kind.CHAT:
        return {
            "messages": ((_TURNS,), (*turns, [], "x", [{"role": 1}], [{"content": "x"}])),
            "input_ids": (([5, vocab - 1], None), ids),
            "logprobs": ((True, False), (2, "x")),
        }
    if kind is Kind.GENERATE:
        texts = (("x", ["x", "y"]), ("", ["x", ""], 5, [5], []))
        return {
            "text": texts,
            "input_ids": ((), ids),
            "return_logprob": ((True, False), (5, "x", [True, False])),
        }
    if kind is Kind.RESPONSES:
        item = {"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1:9/x"}]}
        return {"input": (("x",), (5, [], [item]))}
    picture = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9/x"}}
    given_back = {"type": "tool_result", "tool_use_id": "a", "content": [picture]}
    wrong = [[{"role": "user", "content": [part]}] for part in (picture, given_back)]
    return {"messages": ((_TURNS,), (*wrong, [], "x", [{"role": "user"}]))}


def cases(model: str, *, vocab: int, context: int) -> Iterator[Case]:
    """All cases with one field that is tried."""
    common = _values(vocab, context)
    for kind, table in ((kind, TABLES[kind]) for kind in _BASES):
        known = {**{name: common[name] for name in table if name in common}, **_of_path(kind, vocab, context)}
        for name, (good, bad) in known.items():
            for value in (*good, *bad):
                is_good = any(value is each for each in good)
                yield _case(kind, model, name, value, is_good=is_good)
        for name in REFUSED:
            yield _case(kind, model, name, [1] if name.endswith("data") else "x", is_good=False)
    for name in SAMPLING_PARAMS:
        good, bad = common.get(name, ((), ()))
        for value in (*good, *bad):
            is_good = any(value is each for each in good)
            yield _case(Kind.GENERATE, model, f"sampling_params.{name}", value, is_good=is_good)


def drawn(model: str, *, vocab: int, context: int, count: int, seed: int) -> Iterator[Case]:
    """`count` cases, of which many have several fields tried at once: good ones, and at most one bad one."""
    rng = random.Random(seed)
    single = list(cases(model, vocab=vocab, context=context))
    good = {kind: [case for case in single if case.kind is kind and case.is_good] for kind in _BASES}
    for _ in range(count):
        case = rng.choice(single)
        body = dict(case.body)
        for other in rng.sample(good[case.kind], rng.randrange(4)):
            if "." not in other.field and "." not in case.field and not _conflict(other.field, case.field):
                body.setdefault(other.field, other.value)
        yield Case(kind=case.kind, field=case.field, value=case.value, is_good=case.is_good, body=body)


def _conflict(one: str, other: str) -> bool:
    return "logprobs" in one or one == other


def _case(kind: Kind, model: str, field: str, value: Any, *, is_good: bool) -> Case:
    body = dict(_BASES[kind]) | ({} if kind is Kind.GENERATE else {"model": model})
    if field.startswith("sampling_params."):
        body["sampling_params"] = body["sampling_params"] | {field.partition(".")[2]: value}
    else:
        body[field] = value
    if field == "input_ids" and kind is Kind.GENERATE:
        del body["text"]
    if field in ("top_logprobs_num", "token_ids_logprob", "logprob_start_len"):
        body["return_logprob"] = True
    if field == "top_logprobs" and kind is Kind.CHAT:
        body["logprobs"] = True
    if field in ("min_tokens", "stop_token_ids"):
        body["min_tokens"] = body.get("min_tokens", 2)
    return Case(kind=kind, field=field, value=value, is_good=is_good, body=body)
