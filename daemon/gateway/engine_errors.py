"""What an engine answers to a request that it refuses, as our own error: one dialect for every engine.

SGLang has five forms: OpenAI's old one without `error`, a text or an object as `error`, a list of what its
parser found, and plain text. Clients know one: `error` with a message, a type, a param and a code in letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from pdmuxd.daemon.gateway.contract.tables import SAMPLING_PARAMS, TABLES
from pdmuxd.daemon.gateway.routes import ROUTES, TOKENIZER_FILE, Kind
from pdmuxd.engine.core.errors import RequestError

_MOST_BYTES = 64 * 1024
_MOST_CHARACTERS = 2000
_TOO_LONG = re.compile(
    r"longer than the model's context length|maximum context length|exceeds the maximum allowed length",
    re.IGNORECASE,
)
CONTEXT_WORDS = "this model's maximum context length is"
"""LiteLLM finds a prompt that is too long by these words, LangChain by the code."""
_AS_TOLD = f"{CONTEXT_WORDS} exceeded: "
_GRAMMAR = re.compile(r"grammar|json[_ ]schema|\bregex\b|\bebnf\b|unterminated|xgrammar", re.IGNORECASE)
"""SGLang says 500 where a client's grammar does not compile."""
_LOCATION = re.compile(r"'loc': \((.{0,500}?)\), 'msg': (?:'([^']*)'|\"([^\"]*)\")")
_PLACE = re.compile(r"'([^']*)'|(\d+)")
_LENGTH = re.compile(r"context length (?:of |\()?(\d+)")
_FIELDS: Mapping[str, Mapping[str, str]] = {
    route.path: {name: name for name in TABLES[route.kind]}
    | ({name: f"sampling_params.{name}" for name in SAMPLING_PARAMS} if route.kind is Kind.GENERATE else {})
    for route in ROUTES.values()
    if route.kind in TABLES
}
"""By path, how each field is named to its client."""
_PROMPTS: Mapping[str, str] = {
    "/v1/chat/completions": "messages",
    "/v1/completions": "prompt",
    "/v1/responses": "input",
    "/v1/messages": "messages",
    "/generate": "text",
}


_DOTTED = re.compile(r"^([a-z_]+)((?:\.[a-z0-9_]+)*)(?:\.[^ :]*)?: ")
_TYPES = frozenset({"str", "list", "int", "float", "bool"})
"""Parts of a place that name what the value was tried as."""
_WORD = re.compile(r"[a-z][a-z_]+")
_MEANT: Sequence[tuple[str, tuple[str, ...]]] = (
    ("json grammar", ("json_schema", "response_format", "text", "output_config", "tools")),
    ("json_schema", ("json_schema", "response_format", "text", "output_config")),
    ("structural_tag", ("structural_tag", "response_format")),
    ("min_new_tokens", ("min_new_tokens", "min_tokens")),
    ("max_new_tokens", ("max_new_tokens", "max_output_tokens", "max_tokens")),
    ("tool choice", ("tool_choice",)),
    ("tool_choice", ("tool_choice",)),
    ("not found in tools list", ("tool_choice",)),
    ("out of vocabulary", ("label_token_ids",)),
    ("tool call", ("messages", "input")),
    ("tool", ("tools",)),
    ("reasoning effort", ("reasoning_effort", "reasoning")),
    ("schema", ("response_format", "json_schema", "text", "output_config")),
    ("role", ("messages", "input")),
    ("content", ("messages", "input")),
    ("message", ("messages", "input")),
)
"""What engines say, and the fields that may be meant, of which the path's first one is."""


def engine_error(status: int, body: bytes, path: str) -> RequestError:
    """Read an answer of 400 or more to a request on `path`."""
    message, param = _read(body)
    if _TOO_LONG.search(message):
        found = _LENGTH.search(message)
        if CONTEXT_WORDS not in message.lower():
            message = f"{CONTEXT_WORDS} {found[1]} tokens: {message}" if found else _AS_TOLD + message
        return RequestError(
            message, status=400, code="context_length_exceeded", param=param or _PROMPTS.get(path)
        )
    if status >= 500 and not _GRAMMAR.search(message):
        return RequestError(message, status=status, code="engine_error", param=param)
    if status == 404 and path == TOKENIZER_FILE:
        why = "only the emulated engine gives its tokenizer away; a real model's is in the model's folder"
        return RequestError(why, status=404, code="not_supported")
    if status == 404:
        return RequestError(message, status=404, code="not_found", param=param)
    return RequestError(message, status=400, code="invalid_value", param=param or _field_of(message, path))


def refused_in_stream(stream: bytes, path: str) -> RequestError | None:
    """What refuses the request in a stream that ended without a token; None for another end.

    SGLang finds a prompt that is too long when the stream of a message or a response has begun.
    """
    for line in stream.splitlines():
        if line.startswith(b"data:") and b'"message"' in line and b'"error"' in line:
            found = engine_error(500, _told(line.removeprefix(b"data:")), path)
            if found.status < 500:
                return found
    return None


def _told(event: bytes) -> bytes:
    """An event that tells of a failed response has its error one level further down."""
    try:
        response = msgspec.json.decode(event).get("response")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return event
    return event if response is None else msgspec.json.encode(response)


def _read(body: bytes) -> tuple[str, str | None]:
    """The message, and the field if it names one."""
    try:
        found: object = msgspec.json.decode(body[:_MOST_BYTES])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = {"message": body[:_MOST_CHARACTERS].decode(errors="replace").strip()}
    holder: object = found
    if isinstance(found, dict):
        error = found.get("error")
        holder = error if isinstance(error, dict) else {"message": error} if error is not None else found
    message = holder.get("message") or holder.get("detail") if isinstance(holder, dict) else None
    param = holder.get("param") if isinstance(holder, dict) else None
    text = message if isinstance(message, str) else "the engine refused this request"
    located = _LOCATION.search(text)
    if located is not None:
        param = _joined(located[1])
        what = located[2] or located[3]
        text = f"the field `{param}` is wrong: {what[:1].lower()}{what[1:]}" if param else what
    return text[:_MOST_CHARACTERS], param if isinstance(param, str) else None


def _field_of(message: str, path: str) -> str | None:
    """The field that a message is about; None if it names none that the path has."""
    known = _FIELDS.get(path)
    if known is None:
        return None
    placed = _DOTTED.match(message)
    if placed is not None and placed[1] in known:
        named = placed[1]
        for part in placed[2].split(".")[1:]:
            if part == "custom":
                continue
            if part in _TYPES:
                break
            named += f"[{part}]" if part.isdigit() else f".{part}"
        return named
    text = message.lower()
    for words, fields in _MEANT:
        if words in text:
            found = next((known[name] for name in fields if name in known), None)
            if found is not None:
                return found
    return next((known[word] for word in _WORD.findall(text) if word in known), None)


def _joined(location: str) -> str | None:
    """A place as pydantic names it, `'body', 'messages', 0, 'role'`, in our form, `messages[0].role`."""
    joined = ""
    for name, number in _PLACE.findall(location):
        if number:
            joined += f"[{number}]"
        elif name != "body" and "[" not in name and not name[:1].isupper():
            # A validator, or the class that a value was tried as, stands in the place as well.
            joined += f".{name}"
    return joined.lstrip(".") or None
