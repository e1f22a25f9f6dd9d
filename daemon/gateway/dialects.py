"""How the answers of each API look, as far as the gateway must know: its errors, and where its tokens begin.

Everything else passes untouched, but for what clients of an API cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pdmuxd.daemon.gateway.errors import Answer, answer_for, error_body
from pdmuxd.engine.core.errors import RequestError

MAX_HELD_BYTES = 256 * 1024
"""The most that is held back of a stream's events before its first token. More than this is passed on."""

_NO_TOKEN = b'"usage":{"output_tokens":0}}'
"""In the last event but one of Anthropic's API; at its start the usage has more fields."""
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


_WITH_METADATA = ("/v1/chat/completions", "/v1/completions")
_SPANS = re.compile(rb',\s*"weight_versions":\s*\[[^][]*\](?=\s*\})')
"""In an answer's text the quotes have a backslash before them."""


def with_texts_as_metadata(path: str, body: bytes) -> bytes:
    """An answer whose `metadata` are texts, as OpenAI's are.

    SGLang 0.5.23 has a list among them, which weights made which tokens; strict clients (pydantic-ai) refuse
    the whole answer for it.
    """
    if path not in _WITH_METADATA or b'"weight_versions"' not in body:
        return body
    return _SPANS.sub(b"", body)


class ErrorBody(Protocol):
    """An API's error object as JSON."""

    def __call__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        param: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> bytes:
        """Make the error object; its `type` follows from the status."""


def anthropic_error_body(
    message: str,
    *,
    status: int,
    code: str,
    param: str | None = None,
    details: Mapping[str, object] | None = None,
) -> bytes:
    """Anthropic's error object as JSON, with our `code` and `param` beside what it has."""
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": kind, "message": message, "param": param, "code": code, **(details or {})}
    return msgspec.json.encode({"type": "error", "error": error})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API."""

    error_body: ErrorBody = error_body
    error_head: bytes = b""
    """What stands in front of the data of an error in a stream."""
    token_mark: bytes | None = None
    """Bytes that are in every event with tokens and in no other; None: every event counts as one with tokens.
    """

    hides_refusals: bool = False
    """Whether SGLang hides the cause when it ends a request that it has not begun. A whole answer is then
    503; a stream ends as if all were well, but without a token. The end of a text counts as a token."""

    def answer_for(self, error: RequestError) -> Answer:
        """The HTTP answer that a refused request gets."""
        return answer_for(error, self.error_body)

    def error_event(self, message: str, *, code: str) -> bytes:
        """One server-sent event that tells a client why its stream ends early."""
        return self.error_head + b"data: " + self.error_body(message, status=503, code=code) + b"\n\n"

    def has_tokens(self, events: bytes) -> bool:
        """Whether there are tokens in these events."""
        return self.token_mark is None or self.token_mark in events

    def is_empty(self, stream: bytes) -> bool:
        """Whether a whole stream is the answer to a request that was not begun."""
        return self.hides_refusals and _NO_TOKEN in stream

    def is_preamble(self, events: bytes) -> bool:
        """Whether a stream that began with these events has no token yet."""
        return not self.has_tokens(events) and len(events) < MAX_HELD_BYTES


OPENAI = Dialect()
RESPONSES = Dialect(token_mark=b'.delta"')
"""`response.output_text.delta`, `response.function_call_arguments.delta` and the like."""
ANTHROPIC = Dialect(
    error_body=anthropic_error_body,
    error_head=b"event: error\n",
    token_mark=b'"content_block_delta"',
    hides_refusals=True,
)
