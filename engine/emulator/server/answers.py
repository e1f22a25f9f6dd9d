"""What an answer is to the responder, and the form of SGLang's own endpoint.

Streams are built from templates that are encoded once per request: a token costs a concatenation. The
pieces of a plan are ASCII that JSON need not escape, so they go between prefix and suffix as they are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.usage import finish_reason, matched_by, text_of

DONE = b"data: [DONE]\n\n"
GAP = "\x00"
"""Where a template's text goes; GAP_JSON is what it looks like encoded."""
GAP_JSON = b"\\u0000"
MAX_BEHIND_BYTES = 64 * 1024
"""Bytes of texts that a reader of /generate may be sent at once after it fell behind."""


class WholeBody(Protocol):
    """A response without streaming."""

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body of an answer."""


class Answer(WholeBody, Protocol):
    """One response, streamed or not. `index` is the position of an output among the call's prompts."""

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Events of the tokens from `first` up to `stop`."""

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """One event with all tokens from `first` up to `stop`."""

    def ending(self, index: int, output: Output) -> bytes:
        """The event that says why an output ended."""

    def closing(self, outputs: Sequence[Output]) -> bytes:
        """What follows when all outputs have ended."""


class GenerateAnswer:
    """/generate: one output, and every event carries the whole text so far."""

    def __init__(self, response_id: str) -> None:
        self._id = response_id
        self._start_s = time.monotonic()
        self._text = b""
        self._head = self._tail = b""

    def tokens(self, index: int, output: Output, first: int, stop: int) -> bytes:  # noqa: ARG002
        """One event per token; that of the last token is `ending`, which carries the reason.

        Each event carries the whole text so far, and so all that the events before it said. A reader that is
        far behind gets only the newest: otherwise it would be sent as many whole texts as it has missed
        tokens.
        """
        if not self._head:
            # Not before the first token: only then is it known what the prefix cache held.
            result = b"data: " + msgspec.json.encode(self._result(output, GAP)) + b"\n\n"
            self._head, _, tail = result.rpartition(GAP_JSON)
            self._tail = tail.removesuffix(b"}}\n\n")
        pieces = output.plan.pieces
        if (stop - first) * (len(self._text) + stop - first) > MAX_BEHIND_BYTES:
            self._text += b"".join(pieces[first : stop - 1])
            first = stop - 1
        events = []
        for i in range(first, stop):
            self._text += pieces[i]
            if i + 1 < len(pieces):
                count = b',"completion_tokens":%d}}\n\n' % (i + 1)
                events.append(self._head + self._text + self._tail + count)
        return b"".join(events)

    def at_once(self, index: int, output: Output, first: int, stop: int) -> bytes:
        """Send all at once as `tokens` does: each event carries all the text anyway."""
        return self.tokens(index, output, first, stop)

    def ending(self, index: int, output: Output) -> bytes:  # noqa: ARG002
        return b"data: " + self.whole([output]) + b"\n\n"

    def closing(self, outputs: Sequence[Output]) -> bytes:  # noqa: ARG002
        return DONE

    def whole(self, outputs: Sequence[Output]) -> bytes:
        output = outputs[0]
        result = self._result(output, text_of(output))
        return msgspec.json.encode(
            {
                **result,
                "meta_info": {
                    **result["meta_info"],
                    "finish_reason": _reason(output),
                    "completion_tokens": output.produced,
                    "e2e_latency": time.monotonic() - self._start_s,
                },
            }
        )

    def _result(self, output: Output, text: str) -> dict[str, Any]:
        meta_info = {
            "id": self._id,
            "finish_reason": None,
            "prompt_tokens": output.plan.prompt_tokens,
            "cached_tokens": output.request.reused_tokens,
        }
        return {"text": text, "meta_info": meta_info}


def _reason(output: Output) -> Mapping[str, Any]:
    match finish_reason(output):
        case "length":
            return {"type": "length", "length": output.produced}
        case "abort":
            return {"type": "abort", "message": "the request was aborted"}
        case reason:
            return {"type": reason, "matched": matched_by(output)}
