"""Requests with which no batch can be formed: each fails as it is taken in.

While a batch is formed an exception ends the engine: KV, rows and locks of the prefix cache are taken by
then, and nothing gives them back. What may raise there for the sake of one request is what SGLang makes of
its sampling parameters. So that is made once before, of this request alone and on the CPU, where an index
out of bounds is an exception and not a failed device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.requests import Request, SamplingParams, TakenRequest
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.images import WholePrompts

_MOST_TOP_K = 2**31 - 1
"""SGLang makes a tensor of 32 bits of it."""
_LONGEST = 300
"""Letters of an exception that a client is told."""
_log = logging.getLogger(__name__)


class _Alone:
    """What SGLang's sampling wants to know of a batch."""

    device = "cpu"

    def __init__(self, request: Request) -> None:
        self.reqs = [request]


def take(
    original: Callable[..., object], s: Scheduler, received: TakenRequest, *given: object, **named: object
) -> None:
    """Wraps making a request of what the tokenizer sent: an exception there is that request's own."""
    try:
        original(s, received, *given, **named)
    except Exception as error:
        if any(request.rid == received.rid for request in s.waiting_queue):
            raise  # it is taken in, and others may have seen it
        _log.exception("pdmuxd: request %s could not be taken in", received.rid)
        _refuse(s, received, f"the engine cannot take this request in: {_told(error)}", 500)


def queue(
    original: Callable[..., object],
    s: Scheduler,
    request: Request,
    is_retracted: bool = False,
    *,
    whole: WholePrompts,
) -> None:
    """Wraps queueing one, its grammar being compiled: only what a batch can be formed with is queued."""
    if not is_retracted and (why := whole.refusal(request)):
        s._release_aborted_request(request)
        _refuse(s, request, why, 400)
        return
    if not is_retracted and not _is_plain(request.sampling_params):
        try:
            sglang().SamplingInfo.from_schedule_batch(_Alone(request), s.model_config.vocab_size)
        except Exception as error:
            _log.warning("pdmuxd: no batch can be formed with request %s: %s", request.rid, _told(error))
            s._release_aborted_request(request)
            _refuse(s, request, f"no batch can be formed with these parameters: {_told(error)}", 400)
            return
    original(s, request, is_retracted)


def _is_plain(params: SamplingParams) -> bool:
    """Whether nothing of it is made into a tensor but numbers that fit."""
    return (
        params.top_k <= _MOST_TOP_K
        and not params.logit_bias
        and not params.min_new_tokens
        and not params.frequency_penalty
        and not params.presence_penalty
        and params.repetition_penalty == 1.0
    )


def _refuse(s: Scheduler, request: TakenRequest, why: str, status: int) -> None:
    """Refuse as SGLang ends a request that its queue has no room for, by its id alone."""
    reason: dict[str, object] = {"type": "abort", "status_code": status, "message": why}
    s.ipc_channels.send_to_tokenizer.send_output(
        sglang().AbortRequest(rid=request.rid, finished_reason=reason, abort_message=why), request
    )


def _told(error: Exception) -> str:
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
