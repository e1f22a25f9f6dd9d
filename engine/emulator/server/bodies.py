"""The bodies that clients send, and the one form into which they are brought.

Fields that SGLang knows and that cannot change an emulated answer (temperature, penalties, ...) are
checked where a wrong value would be refused, and otherwise left alone. What would change the answer and is
not emulated is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pdmuxd.engine.core.slo import (
    E2E_RANGE_S,
    E2E_SHARE_RANGE,
    TBT_RANGE_S,
    TTFT_FIXED_RANGE_S,
    RequestTargets,
)
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.structures import ResponseFormat, Structure
from pdmuxd.engine.emulator.server.tokenizer import MAX_TOKEN_ID
from pdmuxd.engine.link.request_tag import targets_in

MAX_PROMPTS = 128
MAX_STOPS = 256
MAX_STOP_CHARS = 1024
MAX_PROMPT_TOKEN_IDS = 1_048_576
"""In one request; the gateway's own limits may be lower."""
DEFAULT_TENANT = "default"
ROLES = "^(?i:system|developer|user|assistant|tool|function)$"
"""As SGLang has them."""

_Positive = Annotated[int, Meta(ge=1)]
_Count = Annotated[int, Meta(ge=0)]
_Temperature = Annotated[float, Meta(ge=0)]
_TopP = Annotated[float, Meta(gt=0, le=1)]
_Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
_Stops = _Stop | Annotated[list[_Stop], Meta(max_length=MAX_STOPS)]
_Name = Annotated[str, Meta(min_length=1, max_length=256)]
TokenIdList = Annotated[list[Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]], Meta(min_length=1)]
TextPrompts = Annotated[list[str], Meta(max_length=MAX_PROMPTS)]
TokenIdPrompts = Annotated[list[TokenIdList], Meta(max_length=MAX_PROMPTS)]


_ABSENT = msgspec.Raw(b"null")


class CustomParams(msgspec.Struct):
    """What the gateway adds: stock SGLang passes this object through."""

    pdmuxd_tenant: _Name | None = None
    pdmuxd_tokens: bool | str = False
    pdmuxd_ttft_target_s: (
        Annotated[float, Meta(ge=TTFT_FIXED_RANGE_S[0], le=TTFT_FIXED_RANGE_S[1])] | None
    ) = None
    pdmuxd_tbt_target_s: Annotated[float, Meta(ge=TBT_RANGE_S[0], le=TBT_RANGE_S[1])] | None = None
    pdmuxd_e2e_target_s: Annotated[float, Meta(ge=E2E_RANGE_S[0], le=E2E_RANGE_S[1])] | None = None
    pdmuxd_e2e_share: Annotated[float, Meta(ge=E2E_SHARE_RANGE[0], le=E2E_SHARE_RANGE[1])] | None = None

    @property
    def targets(self) -> RequestTargets | None:
        return targets_in(msgspec.structs.asdict(self))


class StreamOptions(msgspec.Struct):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _OpenAiBody(msgspec.Struct, kw_only=True):
    response_format: ResponseFormat | None = None
    json_schema: msgspec.Raw = _ABSENT
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: msgspec.Raw = _ABSENT
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Positive | None = None
    min_tokens: _Count | None = None
    ignore_eos: bool | None = None
    stop: _Stops | None = None
    no_stop_trim: bool | None = None
    seed: int | None = None
    temperature: _Temperature | None = None
    top_p: _TopP | None = None
    n: _Positive | None = None
    custom_params: CustomParams | None = None
    rid: _Name | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    return_cached_tokens_details: bool | None = None


class ContentPart(msgspec.Struct):
    """A part of a message: a text or a picture."""

    type: str
    text: str | None = None
    image_url: msgspec.Raw = _ABSENT


class _CalledFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class CalledTool(msgspec.Struct):
    """A call that an assistant made in an earlier turn."""

    function: _CalledFunction


class ChatMessage(msgspec.Struct):
    """A message of a conversation; an assistant's may be without content."""

    role: Annotated[str, Meta(pattern=ROLES)]
    content: str | list[ContentPart] | None = None
    tool_calls: list[CalledTool] | None = None


class ChatBody(_OpenAiBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: _Positive | None = None
    tools: msgspec.Raw = _ABSENT
    tool_choice: msgspec.Raw = _ABSENT
    functions: msgspec.Raw = _ABSENT
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0)] | None = None


class CompletionBody(_OpenAiBody, kw_only=True):
    """POST /v1/completions."""

    prompt: msgspec.Raw
    best_of: _Positive | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0)] | bool | None = None
    suffix: str | None = None


class SamplingParams(msgspec.Struct, kw_only=True):
    """`sampling_params` of /generate."""

    max_new_tokens: _Positive | None = None
    min_new_tokens: _Count | None = None
    ignore_eos: bool | None = None
    stop: _Stops | None = None
    no_stop_trim: bool | None = None
    sampling_seed: int | None = None
    json_schema: msgspec.Raw = _ABSENT
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: msgspec.Raw = _ABSENT
    temperature: _Temperature | None = None
    top_p: _TopP | None = None
    n: _Positive | None = None
    custom_params: CustomParams | None = None


class GenerateBody(msgspec.Struct, kw_only=True):
    """POST /generate."""

    text: str | list[str] | None = None
    input_ids: msgspec.Raw = _ABSENT
    input_embeds: msgspec.Raw = _ABSENT
    sampling_params: SamplingParams | list[SamplingParams] | None = None
    stream: bool | None = None
    return_logprob: bool | list[bool] | None = None
    rid: _Name | None = None
    extra_key: str | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """POST /tokenize."""

    model: str | None = None
    prompt: str | TextPrompts | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None


class AbortBody(msgspec.Struct, kw_only=True):
    """POST /abort_request."""

    rid: str | None = None
    abort_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What decides how many tokens come out, and which."""

    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stops: tuple[str, ...]
    keep_stop: bool
    seed: int
    default_max_tokens: int = 128
    """Where the body names no number."""
    limit_param: str = "max_tokens"
    """The body's own name for `max_tokens`, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to generate, whatever endpoint it came from."""

    rid: str | None
    tenant: str
    prompts: tuple[str | list[int], ...]
    prompt_param: str
    sampling: Sampling
    salt: str
    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    targets: RequestTargets | None = None
    """Of the request itself, in place of its tenant's."""
    cache_details: bool = False
    """Whether the answer says in SGLang's own way where its cached tokens were."""
    choices: int = 1
    """How many answers each prompt gets; `prompts` has each as often."""
    structure: Structure | None = None
    """What is to be said in a form of its own."""
    logprobs: int | None = None
    """For how many likely tokens log probabilities are told beside each token; None: for no token."""
    echo: bool = False
    """Whether the prompt stands before the answer."""
    repeated: Mapping[str, Any] | None = None
    """Fields of the request that its answer says again."""
    direct_tokens: bool = False
    """Whether the daemon wants its tokens straight from the engine."""


_BodyT = TypeVar("_BodyT")


def decode(data: bytes, body: type[_BodyT], *, field: str = "") -> _BodyT:
    """Read a body (or one `field` of it). Raises: RequestError 400 naming the field that is wrong."""
    try:
        return msgspec.json.decode(data, type=body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        missing = what.partition("missing required field ")[2].strip("`")
        param = f"{field}{where.rstrip('`')}.{missing}".strip(".") or None
        subject = f"`{param}` is wrong: " if param else "the body is wrong: "
        raise refuse(subject + what[:1].lower() + what[1:], param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(f"the body is not JSON: {error}", code="invalid_json") from None
