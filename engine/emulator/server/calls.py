"""Each endpoint's body, brought into one form; what is not emulated is refused here, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.emulator.server.bodies import (
    DEFAULT_TENANT,
    MAX_PROMPT_TOKEN_IDS,
    MAX_PROMPTS,
    Call,
    ChatBody,
    ChatMessage,
    CompletionBody,
    ContentPart,
    CustomParams,
    GenerateBody,
    Sampling,
    SamplingParams,
    StreamOptions,
    TextPrompts,
    TokenIdList,
    TokenIdPrompts,
    TokenizeBody,
    decode,
)
from pdmuxd.engine.emulator.server.pictures import picture
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.structures import called, fits, formatted
from pdmuxd.engine.emulator.server.tokenizer import token_ids

DEFAULT_COMPLETION_TOKENS = 16
"""Where /v1/completions names no limit: as in OpenAI's specification and SGLang."""
DEFAULT_OUTPUT_TOKENS = 4096
"""Where another path names no limit. Nearly all natural lengths are shorter: an answer ends by itself, as on
SGLang."""


def chat_call(body: ChatBody) -> Call:
    """Read a chat request. Raises: RequestError."""
    if bytes(body.functions) not in (b"null", b"[]"):
        raise unsupported("functions")
    prompts = (conversation((each.role, _content(each, i)) for i, each in enumerate(body.messages)),)
    limit, name = body.max_tokens, "max_tokens"
    if body.max_completion_tokens is not None:
        limit, name = body.max_completion_tokens, "max_completion_tokens"
    has_result = body.messages[-1].role.lower() == "tool"
    call = _openai_call(body, prompts, "messages", limit, name, default_limit=DEFAULT_OUTPUT_TOKENS)
    return replace(
        call,
        structure=called(bytes(body.tools), bytes(body.tool_choice), has_result=has_result) or call.structure,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def completion_call(body: CompletionBody) -> Call:
    """Read a completion request: a text, token ids, or several of either. Raises: RequestError.

    What stands behind the answer (`suffix`) does not change it, and of `best_of` the first ones are the best.
    """
    prompts = _prompts(bytes(body.prompt))
    call = _openai_call(
        body, prompts, "prompt", body.max_tokens, "max_tokens", default_limit=DEFAULT_COMPLETION_TOKENS
    )
    logprobs = None if body.logprobs is None or body.logprobs is False else int(body.logprobs)
    return replace(call, logprobs=logprobs, echo=bool(body.echo))


def generate_call(body: GenerateBody) -> Call:
    """Read a request in SGLang's own form. Raises: RequestError."""
    if body.return_logprob:
        raise unsupported("return_logprob")
    if bytes(body.input_embeds) != b"null":
        raise unsupported("input_embeds")
    if isinstance(body.sampling_params, list):
        raise _no_batches("sampling_params")
    sampling = body.sampling_params or SamplingParams()
    prompt, param = _generate_prompt(body)
    _one_choice(sampling.n, "sampling_params.n")
    _no_grammar(sampling, "sampling_params.")
    return Call(
        rid=body.rid,
        tenant=_tenant(sampling.custom_params),
        targets=_targets(sampling.custom_params),
        prompts=(prompt,),
        structure=fits(bytes(sampling.json_schema), "sampling_params.json_schema"),
        prompt_param=param,
        sampling=Sampling(
            max_tokens=sampling.max_new_tokens,
            min_tokens=sampling.min_new_tokens or 0,
            ignore_eos=bool(sampling.ignore_eos),
            stops=_stops(sampling.stop),
            keep_stop=bool(sampling.no_stop_trim),
            seed=sampling.sampling_seed or 0,
            limit_param="sampling_params.max_new_tokens",
        ),
        salt=body.extra_key or "",
        stream=bool(body.stream),
    )


def tokens_of(body: TokenizeBody, vocab_size: int) -> list[list[int]]:
    """The ids of each prompt, within the model's vocabulary. Raises: RequestError."""
    if (body.prompt is None) == (body.messages is None):
        raise refuse("give either `prompt` or `messages`", param="messages")
    texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt or []
    if body.messages is not None:
        texts = [conversation((each.role, _content(each, i)) for i, each in enumerate(body.messages))]
    return [(token_ids(text) % vocab_size).tolist() for text in texts]


def _no_grammar(body: ChatBody | CompletionBody | SamplingParams, prefix: str) -> None:
    """Filler follows a JSON schema, and no other grammar."""
    if bytes(body.structural_tag) != b"null":
        raise unsupported(prefix + "structural_tag")
    for name in ("regex", "ebnf"):
        if getattr(body, name) is not None:
            raise unsupported(prefix + name)


def _openai_call(
    body: ChatBody | CompletionBody,
    prompts: tuple[str | list[int], ...],
    prompt_param: str,
    limit: int | None,
    limit_param: str,
    *,
    default_limit: int,
) -> Call:
    _no_grammar(body, "")
    choices = body.n or 1
    if choices * len(prompts) > MAX_PROMPTS:
        raise refuse(f"prompts times `n` make more than {MAX_PROMPTS} answers", param="n")
    options = body.stream_options or StreamOptions()
    return Call(
        rid=body.rid,
        tenant=_tenant(body.custom_params),
        targets=_targets(body.custom_params),
        prompts=tuple(prompt for prompt in prompts for _ in range(choices)),
        choices=choices,
        structure=formatted(body.response_format, "response_format")
        or fits(bytes(body.json_schema), "json_schema"),
        prompt_param=prompt_param,
        sampling=Sampling(
            max_tokens=limit,
            min_tokens=body.min_tokens or 0,
            ignore_eos=bool(body.ignore_eos),
            stops=_stops(body.stop),
            keep_stop=bool(body.no_stop_trim),
            seed=body.seed or 0,
            default_max_tokens=default_limit,
            limit_param=limit_param,
        ),
        salt=(body.cache_salt or "") + (body.extra_key or ""),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
        cache_details=bool(body.return_cached_tokens_details),
        direct_tokens=body.custom_params is not None and bool(body.custom_params.pdmuxd_tokens),
    )


def conversation(turns: Iterable[tuple[str, str]]) -> str:
    """The emulated model's chat template, of roles and what they say."""
    return "".join(f"<|{role}|>\n{text}\n" for role, text in turns) + "<|assistant|>\n"


def _content(message: ChatMessage, position: int) -> str:
    at = f"messages[{position}]"
    for i, call in enumerate(message.tool_calls or ()):
        _check_arguments(call.function.arguments, f"{at}.tool_calls[{i}].function.arguments")
    return text_of_parts(message.content, f"{at}.content", texts=("text",), pictures=("image_url",))


def _check_arguments(arguments: str | None, param: str) -> None:
    """The template of a model writes them as an object."""
    try:
        msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        raise refuse(f"`{param}` is no JSON", param="messages") from None


def text_of_parts(
    content: str | list[ContentPart] | None,
    param: str,
    *,
    texts: Sequence[str],
    pictures: Sequence[str],
) -> str:
    """What parts of these types say to the model. Raises: RequestError 400 for a part of another type."""
    if not isinstance(content, list):
        return content or ""
    said = []
    for i, part in enumerate(content):
        if part.type in texts and part.text is not None:
            said.append(part.text)
        elif part.type in pictures:
            said.append(picture(bytes(part.image_url), f"{param}[{i}]"))
        else:
            raise unsupported(f"{param}[{i}].type")
    return "\n".join(said)


def _prompts(raw: bytes) -> tuple[str | list[int], ...]:
    """A text, token ids, or a list of either; the first characters tell which."""
    if raw.startswith(b'"'):
        return (decode(raw, str, field="prompt"),)
    if not raw.startswith(b"["):
        raise refuse("`prompt` must be a text, token ids, or a list of either", param="prompt")
    _check_number_of_ids(raw, "prompt")
    match raw[1:65].lstrip()[:1]:
        case b'"':
            return tuple(decode(raw, TextPrompts, field="prompt"))
        case b"[":
            return tuple(decode(raw, TokenIdPrompts, field="prompt"))
        case _:
            return (decode(raw, TokenIdList, field="prompt"),)


def _generate_prompt(body: GenerateBody) -> tuple[str | list[int], str]:
    ids = bytes(body.input_ids)
    if body.text is None and ids == b"null":
        raise refuse("give either `text` or `input_ids`", param="text")
    if body.text is not None and ids == b"null":
        if isinstance(body.text, list):
            raise _no_batches("text")
        return body.text, "text"
    if ids[1:65].lstrip().startswith(b"["):
        raise _no_batches("input_ids")
    _check_number_of_ids(ids, "input_ids")
    return decode(ids, TokenIdList, field="input_ids"), "input_ids"


def _check_number_of_ids(raw: bytes, param: str) -> None:
    """Refuse too many before they are made into objects: there is a comma between any two."""
    if not raw[1:65].lstrip().startswith(b'"') and raw.count(b",") >= MAX_PROMPT_TOKEN_IDS:
        raise refuse(f"`{param}` has more than {MAX_PROMPT_TOKEN_IDS} token ids", param=param)


def _tenant(custom: CustomParams | None) -> str:
    return (custom.pdmuxd_tenant if custom else None) or DEFAULT_TENANT


def _targets(custom: CustomParams | None) -> RequestTargets | None:
    return None if custom is None else custom.targets


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def _one_choice(n: int | None, param: str) -> None:
    if n not in (None, 1):
        raise refuse(f"`{param}` is {n}; the emulated engine gives one choice per prompt", param=param)


def unsupported(param: str) -> RequestError:
    """The error of a request that asks for what is not emulated."""
    return refuse(f"`{param}` is not supported by the emulated engine", param=param, code="unsupported")


def _no_batches(param: str) -> RequestError:
    return refuse(f"`{param}` is a list; /generate takes one prompt here", param=param, code="unsupported")
