"""Requests that know the contract: each field of each path at, inside and beyond its range."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    is_open: bool = False
    """Whether the gateway or the engine may refuse it nevertheless, for what it means."""
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
    Kind.SCORE: {"query": "say", "items": ["something", "nothing"], "label_token_ids": [5, 6]},
    Kind.COUNT_TOKENS: {"messages": _TURNS},
    Kind.TOKENIZE: {"prompt": "say something"},
    Kind.DETOKENIZE: {"tokens": [5, 6]},
}
_SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
_TOOL = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
_LENGTHS = ("max_tokens", "max_new_tokens")
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
            *("apply_softmax", "return_token_logprobs", "item_first"),
            *("no_stop_trim", "skip_special_tokens", "return_token_ids", "return_cached_tokens_details"),
            *("parallel_tool_calls", "separate_reasoning", "stream_reasoning", "return_prompt_token_ids"),
            *("return_meta_info", "echo", "return_text_in_logprobs", "spaces_between_special_tokens"),
            *(
                "stream",
                "ignore_eos",
                "continue_final_message",
                "add_special_tokens",
                "add_generation_prompt",
            ),
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
        "json_schema": (('{"type": "integer"}',), (5, [1], True, {}, _SCHEMA)),
        "structural_tag": ((), (5, [1], True, {})),
        "extra_key": (("x", ""), (5, [5], {}, "x" * 1025)),
        "cache_salt": (("x", ""), (5, [5], {}, "x" * 1025)),
        "model": ((), ("", 5, None, [], {})),
        "suffix": (("x", None), _WRONG_TEXT),
        "stream_options": ((None,), _WRONG_OBJECT),
        "tool_choice": (("none", "auto"), (5, [1], True)),
        "reasoning_effort": (("low", None), ([], {}, True)),
        "reasoning": ((None,), _WRONG_OBJECT),
        "thinking": ((None,), (5, [1])),
        "max_tool_calls": ((0, 1, None), (-1, 2**31, 1.5, "1")),
        "include": (([], None), (5, "x", [1], {})),
        "truncation": (("disabled", None), _WRONG_TEXT),
        "service_tier": (("auto", None), _WRONG_TEXT),
        "text": ((None,), _WRONG_OBJECT),
        "output_config": ((None,), _WRONG_OBJECT),
        "system": (("be short", None), (5, {}, True)),
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
            "sampling_params": (({}, None), (5, "x", [5], [{}, {}])),
        }
    if kind is Kind.TOKENIZE:
        return {"prompt": (("x", ["x", "y"], ""), (5, [], {}, [5])), "messages": ((), (*turns, [], "x"))}
    if kind is Kind.DETOKENIZE:
        return {"tokens": (([5], [[5], [vocab - 1]]), (*ids, 5, "x", [], [[]], [[5], []], [1.5]))}
    if kind is Kind.SCORE:
        wrong = (*ids, [], [[]], [[5], []], {}, 5, [1.5])
        return {
            "query": (("x", "", None), (*ids, {}, 5, [1.5], [0] * context)),
            "items": (("x", ["x", "y"]), (*([each] for each in ids), [5], "", ["x", ""], [], {}, 5, [[]])),
            "label_token_ids": (([5], [[5], [vocab - 1]]), (*wrong[:5], {}, "x", [1.5], [0] * 21)),
            "temperature": ((1, 1.0, None), (0, -1, "1", 1e39)),
        }
    if kind is Kind.RESPONSES:
        item = {"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1:9/x"}]}
        return {"input": (("x",), (5, [], [item]))}
    picture = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9/x"}}
    given_back = {"type": "tool_result", "tool_use_id": "a", "content": [picture]}
    wrong = [[{"role": "user", "content": [part]}] for part in (picture, given_back)]
    return {
        "messages": ((_TURNS,), (*wrong, [], "x", [{"role": "user"}])),
        "tool_choice": ((None,), ("none", 5, [1])),
    }


def _open_values(context: int) -> Mapping[str, Sequence[Any]]:
    """By field, values of the right form that an engine may refuse for what they mean."""
    deep: Any = {"type": "integer"}
    for _ in range(12):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    refers = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
    schemas = (
        _SCHEMA,
        deep,
        refers,
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"enum": []},
        {"anyOf": []},
    )
    as_text = (*map(json.dumps, schemas), "", "{", "null", "5")
    tools = [_TOOL | {"function": {"name": "f", "parameters": schema}} for schema in schemas]
    parts = (
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "nonsense"},
        {},
        {"text": "x"},
        "x",
        5,
        None,
    )
    items = ({"type": "function_call_output", "call_id": "a", "output": "x"}, {"type": "nonsense"}, {})
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}
    turns = (
        *({"role": "user", "content": [part]} for part in parts),
        *(
            {"role": role, "content": "x"}
            for role in ("system", "developer", "assistant", "tool", "nonsense")
        ),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "tool_calls": 5},
        {"role": "tool", "tool_call_id": "nobody", "content": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": ""},
        {"role": "user", "content": "\x00 \U0001f600"},
    )
    return {
        "messages": [[*before, turn] for turn in turns for before in ([], _TURNS)],
        "input": [[*_TURNS, item] for item in (*items, *turns)],
        "system": ([{"type": "text", "text": "x"}], [5], [{}], [], ""),
        "tools": (
            [_TOOL],
            [{}],
            [_TOOL, _TOOL],
            *([tool] for tool in tools),
            [{"name": "f", "input_schema": {}}],
        ),
        "tool_choice": (
            "required",
            "nonsense",
            {"type": "function", "function": {"name": "g"}},
            {},
            {"type": "any"},
        ),
        "response_format": (
            *({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}} for schema in schemas),
            *(
                {},
                {"type": "nonsense"},
                {"type": "json_schema"},
                {"type": "structural_tag"},
                {"type": "text"},
            ),
        ),
        "text": (
            {},
            {"format": {"type": "json_schema", "name": "x", "schema": _SCHEMA}},
            {"format": {}},
            {"x": 1},
        ),
        "output_config": ({}, {"format": {"type": "json_schema", "schema": _SCHEMA}}, {"effort": "x"}),
        "json_schema": as_text,
        "structural_tag": (
            *as_text,
            json.dumps({"type": "structural_tag", "structures": [], "triggers": []}),
        ),
        "regex": ("", "(((", "(a|b)*c", "[^\\s]{1,40}", "a{99999}", "(?<=x)y", "\\p{L}+"),
        "ebnf": ("", "x", 'root ::= root "a"', "root ::= other", "root ::="),
        "stream_options": (
            {},
            {"include_usage": True},
            {"include_usage": "x"},
            {"continuous_usage_stats": True},
        ),
        "reasoning": ({}, {"effort": "low"}, {"effort": "x"}, {"enabled": True}),
        "reasoning_effort": ("nonsense", 5.5, -1),
        "thinking": ({}, {"type": "enabled", "budget_tokens": 10**9}, {"type": "disabled"}, "x", True),
        "include": (["message.output_text.logprobs"], ["nonsense"]),
        "truncation": ("auto", "nonsense"),
        "service_tier": ("nonsense", ""),
        "metadata": ({"user_id": 5}, {"a": {"b": []}}),
        "stop": ([""], ""),
        "stop_sequences": ([""],),
        "max_tokens": (context, context - 1),
        "min_tokens": (4, context),
        "extra_key": (["x"], ["x", "y"], []),
        "sampling_params": ([{}], [{"max_new_tokens": 1, "n": 2}]),
        "return_logprob": ([True],),
        "logprob_start_len": ([0],),
        "top_logprobs_num": ([1],),
        "token_ids_logprob": ([[5]], [[5], [6]]),
        "max_new_tokens": (context, context - 1),
        "min_new_tokens": (4, context),
    }


def cases(model: str, *, vocab: int, context: int) -> Iterator[Case]:
    """All cases with one field that is tried."""
    common, opened = _values(vocab, context), _open_values(context)
    for kind, table in ((kind, TABLES[kind]) for kind in _BASES):
        known = {**{name: common[name] for name in table if name in common}, **_of_path(kind, vocab, context)}
        for name in known | {name: () for name in table if name in opened}:
            good, bad = known.get(name, ((), ()))
            has_grammars = "regex" in table or name not in _LENGTHS
            yield from _cases(kind, model, name, good, bad, opened.get(name, ()) if has_grammars else ())
        for name in REFUSED:
            yield _case(kind, model, name, [1] if name.endswith("data") else "x", is_good=False)
    for name in SAMPLING_PARAMS:
        good, bad = common.get(name, ((), ()))
        yield from _cases(Kind.GENERATE, model, f"sampling_params.{name}", good, bad, opened.get(name, ()))


def _cases(
    kind: Kind, model: str, name: str, good: Sequence[Any], bad: Sequence[Any], opened: Sequence[Any]
) -> Iterator[Case]:
    for value in good:
        yield _case(kind, model, name, value, is_good=True)
    for value in bad:
        yield _case(kind, model, name, value, is_good=False)
    for value in opened:
        yield _case(kind, model, name, value, is_good=True, is_open=True)


def drawn(model: str, *, vocab: int, context: int, count: int, seed: int) -> Iterator[Case]:
    """`count` cases, of which many have several fields tried at once: good ones, and at most one bad one."""
    rng = random.Random(seed)
    single = list(cases(model, vocab=vocab, context=context))
    good = {kind: [case for case in single if case.kind is kind and case.is_good] for kind in _BASES}
    for _ in range(count):
        case = rng.choice(single)
        body, is_open = dict(case.body), case.is_open
        alone = case.is_open and case.field.rpartition(".")[2] in _LENGTHS
        for other in rng.sample(good[case.kind], 0 if alone else rng.randrange(4)):
            if (
                other.field not in _LENGTHS
                and "." not in other.field
                and "." not in case.field
                and not _conflict(other.field, case.field)
            ):
                body.setdefault(other.field, other.value)
                is_open |= other.is_open
        yield replace(case, is_open=is_open, body=body)


def _conflict(one: str, other: str) -> bool:
    return "logprobs" in one or one == other


def _case(kind: Kind, model: str, field: str, value: Any, *, is_good: bool, is_open: bool = False) -> Case:
    body = dict(_BASES[kind]) | ({} if kind is Kind.GENERATE else {"model": model})
    if field.startswith("sampling_params."):
        body["sampling_params"] = body["sampling_params"] | {field.partition(".")[2]: value}
    else:
        body[field] = value
    if field == "input_ids" and kind is Kind.GENERATE:
        del body["text"]
    if kind is Kind.TOKENIZE and field in ("messages", "tools", "tool_choice", "add_generation_prompt"):
        del body["prompt"]
        body.setdefault("messages", _TURNS)
    if field in ("top_logprobs_num", "token_ids_logprob", "logprob_start_len"):
        body["return_logprob"] = True
    if field == "top_logprobs" and kind is Kind.CHAT:
        body["logprobs"] = True
    if field in ("min_tokens", "stop_token_ids"):
        body["min_tokens"] = body.get("min_tokens", 2)
    if is_open and field.rpartition(".")[2] in _LENGTHS:
        # A grammar ends an answer that may be so long.
        (body["sampling_params"] if kind is Kind.GENERATE else body)["regex"] = "a"
    return Case(kind=kind, field=field, value=value, is_good=is_good, is_open=is_open, body=body)
