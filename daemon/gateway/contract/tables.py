"""Every field that a request may send to an engine, by path; what is in no table does not reach it.

A field is checked here where a wrong value would harm the engine, cost others' time, or be told in other
words than ours. What only one answer depends on (a tool, a schema) is checked for its form here, and read
by the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pdmuxd.daemon.gateway.contract import messages, values
from pdmuxd.daemon.gateway.contract.prompts import (
    ids_of_chat,
    ids_of_generate,
    items_of_score,
    prompt_of_completion,
    query_of_score,
    texts,
)
from pdmuxd.daemon.gateway.contract.prompts import text_of_generate as text
from pdmuxd.daemon.gateway.contract.sampling_params import checked_of_each
from pdmuxd.daemon.gateway.contract.template_kwargs import template_kwargs
from pdmuxd.daemon.gateway.contract.values import (
    BOOL,
    NAME,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_OBJECT,
    Check,
    number,
    of_type,
    output_tokens,
    positive,
    whole,
)
from pdmuxd.daemon.gateway.routes import Kind

Table = Mapping[str, Check]

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "lora_path": "a tenant has the adapter of its name, if there is one",
        "functions": "functions are given as `tools`",
        "function_call": "functions are given as `tools`, and chosen by `tool_choice`",
        "custom_logit_processor": "clients' programs do not run in the engine",
        "return_hidden_states": "hidden states are not told",
        "return_routed_experts": "which experts a token took is not told",
        "return_sampling_mask": "which tokens were candidates is not told",
        "stop_regex": "the engine's loop would stand still while it searches",
        "watermark": "watermarks are not made",
        "beam_width": "beam search is not served",
        "input_embeds": "a prompt is text or token ids",
        "positional_embed_overrides": "a prompt is text or token ids",
        "image_data": "pictures are parts of messages, on /v1/chat/completions",
        "video_data": "videos are parts of messages, on /v1/chat/completions",
        "audio_data": "sounds are parts of messages, on /v1/chat/completions",
        "token_indices_to_pool": "pooling is not served",
        "multi_item_delimiter_indices": "scoring of several items is not served",
        "previous_response_id": "answers are not stored; send the whole conversation as `input`",
        "conversation": "answers are not stored; send the whole conversation as `input`",
        "background": "answers are not stored; ask with `stream` and stay connected",
    }
)
"""Fields that ask for another answer than the one that would come: refused wherever they are given, with the
reason. All other fields that are in no table are left out."""
_INT64 = whole(-(2**63), 2**63 - 1)
_CHOICES = whole(1)
_CACHE: Table = {"extra_key": of_type(object), "cache_salt": of_type(object)}
"""Checked where the key of the cache is made (`cache_key.py`)."""
_STREAM: Table = {"stream": BOOL}

_NUCLEUS: Table = {
    "temperature": number(0),
    "top_p": positive(1),
    "top_k": values.top_k,
}
_SAMPLING: Table = {
    **_NUCLEUS,
    "min_p": number(0, 1),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "repetition_penalty": positive(2),
}
_ENDS: Table = {
    "stop": values.stops,
    "stop_token_ids": values.stop_ids,
    "no_stop_trim": BOOL,
    "ignore_eos": BOOL,
    "skip_special_tokens": BOOL,
}
_GRAMMARS: Table = {"regex": TEXT, "ebnf": TEXT}
_OPENAI: Table = {
    **_SAMPLING,
    **_ENDS,
    **_GRAMMARS,
    **_STREAM,
    **_CACHE,
    "model": NAME,
    "stream_options": OBJECT,
    "max_tokens": output_tokens(1),
    "min_tokens": output_tokens(0),
    "n": _CHOICES,
    "seed": _INT64,
    "logit_bias": values.bias,
    "response_format": OBJECT,
    "user": TEXT,
    "return_token_ids": BOOL,
    "return_cached_tokens_details": BOOL,
}
_CHAT: Table = {
    **_OPENAI,
    "messages": messages.chat,
    "max_completion_tokens": output_tokens(1),
    "logprobs": BOOL,
    "top_logprobs": values.logprobs,
    "tools": OBJECTS,
    "tool_choice": of_type(str | values.Object | None),
    "parallel_tool_calls": BOOL,
    "reasoning_effort": of_type(str | float | None),
    "reasoning": OBJECT,
    "thinking": of_type(bool | str | values.Object | None),
    "separate_reasoning": BOOL,
    "stream_reasoning": BOOL,
    "continue_final_message": BOOL,
    "chat_template_kwargs": template_kwargs,
    "input_ids": ids_of_chat,
    "return_prompt_token_ids": BOOL,
    "return_meta_info": BOOL,
}
_COMPLETION: Table = {
    **_OPENAI,
    "prompt": prompt_of_completion,
    "best_of": _CHOICES,
    "echo": BOOL,
    "suffix": TEXT,
    "logprobs": values.logprobs_or_false,
    "json_schema": TEXT,
}
SAMPLING_PARAMS: Table = MappingProxyType(
    {
        **_SAMPLING,
        **_ENDS,
        **_GRAMMARS,
        "max_new_tokens": output_tokens(0),
        "min_new_tokens": output_tokens(0),
        "n": _CHOICES,
        "sampling_seed": _INT64,
        "logit_bias": values.bias,
        "json_schema": TEXT,
        "structural_tag": TEXT,
        "spaces_between_special_tokens": BOOL,
    }
)
"""What `sampling_params` of /generate holds."""
_GENERATE: Table = {
    **_STREAM,
    **_CACHE,
    "text": text,
    "input_ids": ids_of_generate,
    "sampling_params": checked_of_each(SAMPLING_PARAMS, REFUSED),
    "return_logprob": of_type(bool | list[bool] | None),
    "logprob_start_len": values.start_of_each,
    "top_logprobs_num": values.logprobs_of_each,
    "token_ids_logprob": values.logprob_ids,
    "return_text_in_logprobs": BOOL,
    "return_prompt_token_ids": BOOL,
}
_RESPONSES: Table = {
    **_SAMPLING,
    **_STREAM,
    **_CACHE,
    "model": NAME,
    "input": messages.responses_input,
    "instructions": TEXT,
    "max_output_tokens": output_tokens(1),
    "max_tool_calls": whole(0),
    "tools": OBJECTS,
    "tool_choice": TEXT_OR_OBJECT,
    "parallel_tool_calls": BOOL,
    "reasoning": OBJECT,
    "text": OBJECT,
    "include": of_type(list[str] | None),
    "top_logprobs": values.logprobs,
    "truncation": TEXT,
    "service_tier": TEXT,
    "metadata": OBJECT,
    "user": TEXT,
    "stop": values.stops,
    "chat_template_kwargs": template_kwargs,
}
_MESSAGES: Table = {
    **_NUCLEUS,
    **_STREAM,
    **_CACHE,
    "model": NAME,
    "messages": messages.messages,
    "system": messages.system,
    "max_tokens": output_tokens(1),
    "stop_sequences": values.stops,
    "metadata": OBJECT,
    "thinking": OBJECT,
    "tools": OBJECTS,
    "tool_choice": OBJECT,
    "output_config": OBJECT,
}
_COUNT: Table = {
    name: _MESSAGES[name]
    for name in ("model", "messages", "system", "thinking", "tools", "tool_choice", "output_config")
}
_TOKENIZE: Table = {
    **{name: _CHAT[name] for name in ("model", "messages", "tools", "tool_choice", "reasoning_effort")},
    **{name: _CHAT[name] for name in ("continue_final_message", "chat_template_kwargs")},
    "prompt": texts,
    "add_special_tokens": BOOL,
    "add_generation_prompt": BOOL,
}
_DETOKENIZE: Table = {"model": NAME, "tokens": ids_of_generate, "skip_special_tokens": BOOL}

_SCORE: Table = {
    "model": NAME,
    "query": query_of_score,
    "items": items_of_score,
    "label_token_ids": values.labels,
    "apply_softmax": BOOL,
    "temperature": positive(values.FLOAT32_MAX),
    "return_token_logprobs": BOOL,
    "item_first": BOOL,
}

TABLES: Mapping[Kind, Table] = MappingProxyType(
    {
        Kind.CHAT: _CHAT,
        Kind.COMPLETION: _COMPLETION,
        Kind.GENERATE: _GENERATE,
        Kind.RESPONSES: _RESPONSES,
        Kind.MESSAGES: _MESSAGES,
        Kind.SCORE: _SCORE,
        Kind.COUNT_TOKENS: _COUNT,
        Kind.TOKENIZE: _TOKENIZE,
        Kind.DETOKENIZE: _DETOKENIZE,
    }
)
REQUIRED: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        Kind.CHAT: ("model", "messages"),
        Kind.COMPLETION: ("model", "prompt"),
        Kind.GENERATE: (),
        Kind.RESPONSES: ("model", "input"),
        Kind.MESSAGES: ("model", "max_tokens", "messages"),
        Kind.SCORE: ("model", "items", "label_token_ids"),
        Kind.COUNT_TOKENS: ("model", "messages"),
        Kind.TOKENIZE: (),
        Kind.DETOKENIZE: ("tokens",),
    }
)
_NO_VECTORS = "a query and its items are text or token ids"
REFUSED_ON: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        Kind.RESPONSES: {"prompt": "prompts are not stored; send the whole conversation as `input`"},
        Kind.SCORE: {
            "embed_override_token_id": _NO_VECTORS,
            "query_embed_overrides": _NO_VECTORS,
            "item_embed_overrides": _NO_VECTORS,
            "return_pooled_hidden_states": "hidden states are not told",
            "score_extraction_token": "scores are read behind the last token of each item",
        },
    }
)
