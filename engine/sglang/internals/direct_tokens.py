"""New tokens go from SGLang's scheduler straight to the daemon, past its detokenizer and its HTTP server.

The first token of an answer and its end go SGLang's own way, the end with all the text in between
(`engine/link/token_frames.py`). Of an answer that ends at its greatest length the last token goes both ways.
Where a parser of SGLang's may find the begin of a call or the end of reasoning, tokens go SGLang's way until
it is known what they are; behind a call all do (`parsers.py`).
SGLang is told nothing: to its output streamer such an answer is one that is streamed in few parts, and
whenever the daemon does not take tokens the rest goes SGLang's way as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pdmuxd.engine.link.token_frames import (
    TOKEN_FRAMES_PROTOCOL,
    Begun,
    LogprobRow,
    Sample,
    TokenSender,
    TokenStep,
    Vocabulary,
    context_of,
    frames_path,
    tokenizer_path,
)
from pdmuxd.engine.sglang.api.symbols import plain_answers, streaming_differences
from pdmuxd.engine.sglang.api.types.requests import StreamedRequest
from pdmuxd.engine.sglang.api.types.scheduler import OutputStreamer, Scheduler
from pdmuxd.engine.sglang.internals.logprobs import logprob_sample, logprobs_behind
from pdmuxd.engine.sglang.internals.parsers import (
    Passes,
    Watch,
    no_parser,
    tokens_of,
    tokens_with,
    watched_calls,
    watched_reasoning,
)

TOKENS_KEY = "pdmuxd_tokens"
"""In the request's custom parameters, where the gateway can use tokens: its own id of the answer.

SGLang gives each choice of several, and each request of a list, an id that the gateway does not know."""
PARSED_KEY = "pdmuxd_parsed"
"""Beside it: which parsers of SGLang's read the answer (`CHAT`, `CALLS`)."""
CHAT, CALLS = "chat", "calls"
_MOST_HANDED_BACK = 48
"""An answer that a parser still holds after so many tokens stays with SGLang."""
_BY_LENGTH = "FINISH_LENGTH"
"""SGLang's class of such an end; under another name, ends go SGLang's way alone."""
_SAMPLES, _SAMPLE_TOKENS = 32, 12
_UNFINISHED = "\ufffd"
_MOST_FIRST_TOKENS = 16
"""An answer whose first tokens, so many, are no whole text goes SGLang's way."""

NO_WATCHES: Mapping[str, Watch] = {}
_log = logging.getLogger(__name__)


class _Answer:
    """One whose tokens go to the daemon."""

    __slots__ = ("has_logprobs", "has_stops", "is_back", "request", "sent", "stream", "watch")

    def __init__(self, request: StreamedRequest, stream: int, watch: Watch | None) -> None:
        self.request = request
        self.stream = stream
        self.watch = watch
        self.is_back = False
        """Whether SGLang sends it, until it is known what the tokens behind `sent` are."""
        self.sent = request.send_token_offset
        self.has_stops = bool(request.sampling_params.stop_strs)
        self.has_logprobs = request.return_logprob


class DirectStreamer:
    """Stands in for SGLang's output streamer where results of batches are processed."""

    def __init__(
        self,
        streamer: OutputStreamer,
        sender: TokenSender,
        text_of: Callable[[Sequence[int], bool], str],
        watches: Mapping[str, Watch] = NO_WATCHES,
    ) -> None:
        """`text_of` is the text of tokens, without special ones if that is asked; `watches` are by what a
        request names.
        """
        self._watches = watches
        self._streamer = streamer
        self._sender = sender
        self._text_of = text_of
        self._answers: dict[str, _Answer] = {}
        self._no_text_yet: dict[str, StreamedRequest] = {}
        """Answers whose tokens so far are no whole text: SGLang has not begun to write them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streamer, name)

    def poll(self) -> None:
        """Now and then: whether the daemon is there, and which answers have ended otherwise."""
        self._sender.poll()
        if not self._sender.is_ready:
            self._answers.clear()
        ended = [rid for rid, answer in self._answers.items() if answer.request.finished_reason is not None]
        for rid in ended:
            del self._answers[rid]
        for rid in [rid for rid, each in self._no_text_yet.items() if each.finished_reason is not None]:
            del self._no_text_yet[rid]

    def stream_output(
        self,
        reqs: Sequence[StreamedRequest],
        return_logprob: bool,
        skip_req: StreamedRequest | None = None,
    ) -> None:
        if not self._sender.is_ready:
            self._streamer.stream_output(reqs, return_logprob, skip_req)
            return
        answers = self._answers
        others: list[StreamedRequest] = []
        may_begin: list[StreamedRequest] = []
        streams: list[int] = []
        token_ids: list[int] = []
        several: list[tuple[int, list[int]]] = []
        last: list[tuple[int, int]] = []
        logprobs: list[tuple[int, list[LogprobRow]]] = []
        back: list[_Answer] = []
        before: list[_Answer] = []
        for request in reqs:
            answer = answers.get(request.rid)
            if answer is None:
                others.append(request)
                if not request.send_token_offset or request.rid in self._no_text_yet:
                    may_begin.append(request)
            elif request.finished_reason is not None:
                del answers[request.rid]
                others.append(request)
                if request is not skip_req and _is_as_long_as_it_may_be(answer) and not _must_be_read(answer):
                    rows = logprobs_behind(answer.sent, request) if answer.has_logprobs else []
                    if rows is None:
                        continue
                    last.append((answer.stream, request.output_ids[-1]))
                    logprobs += [(answer.stream, rows)] if rows else []
            elif request is not skip_req and not (answer.has_stops and request.check_match_stop_str_prefix()):
                tokens = request.output_ids
                count = len(tokens)
                new = count - answer.sent
                if answer.watch is not None and new and _must_be_read(answer):
                    begins = not answer.is_back and tokens[answer.sent] in answer.watch.alone
                    answer.is_back = True
                    if begins and request.send_token_offset < answer.sent:
                        before.append(answer)
                        continue
                    others.append(request)
                    back.append(answer)
                    continue
                rows = logprobs_behind(answer.sent, request) if answer.has_logprobs else []
                if rows is None:  # its own way says what it makes of that
                    del answers[request.rid]
                    others.append(request)
                    continue
                logprobs += [(answer.stream, rows)] if rows else []
                answer.sent = count
                if new == 1:
                    streams.append(answer.stream)
                    token_ids.append(tokens[-1])
                elif new > 1:
                    several.append((answer.stream, list(tokens[-new:])))
        if others or not reqs:
            self._streamer.stream_output(others, return_logprob, skip_req)
        for answer in before:
            self._send_before(answer, return_logprob)
        begun = [begin for request in may_begin if (begin := self._begin(request)) is not None]
        heard = [(answer.stream, tokens) for answer in back if (tokens := self._heard(answer))]
        if streams or several or begun or last or heard:
            step = TokenStep(
                begun=begun,
                streams=streams,
                token_ids=token_ids,
                several=several,
                last=last,
                heard=heard,
                logprobs=logprobs,
            )
            if not self._sender.send(step):
                answers.clear()
                self._streamer.stream_output(
                    [request for request in reqs if request not in others], return_logprob, skip_req
                )

    def _send_before(self, answer: _Answer, return_logprob: bool) -> None:
        """Let SGLang read all but the new tokens: its parser finds these at the begin of what comes next."""
        request = answer.request
        tokens, request.output_ids = request.output_ids, request.output_ids[: answer.sent]
        try:
            self._streamer.stream_output([request], return_logprob, None)
        finally:
            request.output_ids = tokens

    def _heard(self, answer: _Answer) -> list[int]:
        """The tokens that SGLang has read, once it is known what they are: the answer is direct again."""
        request, watch = answer.request, answer.watch
        tokens = list(request.output_ids[answer.sent :])
        if watch is None or request.send_token_offset != len(request.output_ids):
            return []
        text = self._text_of(tokens, request.sampling_params.skip_special_tokens)
        if text.endswith(_UNFINISHED) or not watch.goes_on(text):
            if len(tokens) > _MOST_HANDED_BACK:
                del self._answers[request.rid]
            return []
        answer.is_back = False
        answer.sent += len(tokens)
        return tokens

    def _begin(self, request: StreamedRequest) -> Begun | None:
        """Begin after its first tokens went SGLang's way, and its first event is on its way to the client."""
        params = request.sampling_params
        sent = request.send_token_offset
        answer_id = (params.custom_params or {}).get(TOKENS_KEY)
        if (
            not sent
            or request.finished_reason is not None
            or not request.stream
            or params.stream_interval not in (None, 1)
            or not answer_id
        ):
            return None
        tokens = request.output_ids[:sent]
        text = self._text_of(tokens, params.skip_special_tokens)
        watch = self._watches.get(str((params.custom_params or {}).get(PARSED_KEY, "")))
        if not text or text.endswith(_UNFINISHED) or not (watch is None or watch.begins(text)):
            if sent < _MOST_FIRST_TOKENS:
                self._no_text_yet[request.rid] = request
            else:
                self._no_text_yet.pop(request.rid, None)
            return None
        self._no_text_yet.pop(request.rid, None)
        answer = self._answers[request.rid] = _Answer(request, self._sender.next_stream(), watch)
        return Begun(
            stream=answer.stream,
            request_id=answer_id if isinstance(answer_id, str) else request.rid,
            context=context_of(request.origin_input_ids_unpadded),
            token_ids=tuple(tokens),
            skip_special_tokens=params.skip_special_tokens,
            part=request.rid,
        )


def _must_be_read(answer: _Answer) -> bool:
    """Whether a parser of SGLang's may change what is new."""
    watch = answer.watch
    if watch is None or answer.is_back:
        return answer.is_back
    return not watch.tokens.isdisjoint(answer.request.output_ids[answer.sent :])


def _is_as_long_as_it_may_be(answer: _Answer) -> bool:
    """Whether its last token is text for certain, and the daemon has all before it."""
    request = answer.request
    return (
        not answer.has_stops
        and type(request.finished_reason).__name__ == _BY_LENGTH
        and len(request.output_ids) == answer.sent + 1
    )


def install(scheduler: Scheduler, link: str) -> DirectStreamer | None:
    """Put it in the place of the scheduler's own; None, with a line in the log, where that cannot work."""
    reason = _unfit(scheduler)
    if reason is not None:
        _log.warning("pdmuxd: tokens go through SGLang's HTTP server: %s", reason)
        return None
    processor = scheduler.batch_result_processor
    tokenizer: Any = getattr(scheduler, "tokenizer")  # noqa: B009 - looked at by `_unfit`, no part of the API
    watches = _watches(scheduler, tokenizer)
    sender = TokenSender(frames_path(link), lambda: _introduce(scheduler, tokenizer_path(link), watches))
    decode = tokenizer.backend_tokenizer.decode

    def text_of(tokens: Sequence[int], skip_special_tokens: bool) -> str:
        return str(decode(list(tokens), skip_special_tokens=skip_special_tokens))

    streamer = DirectStreamer(processor.output_streamer, sender, text_of, watches)
    object.__setattr__(processor, "output_streamer", streamer)  # it is frozen
    return streamer


def _unfit(scheduler: Scheduler) -> str | None:
    different = streaming_differences()
    if different:
        return different[0]
    tokenizer = getattr(scheduler, "tokenizer", None)
    if not getattr(tokenizer, "is_fast", False) or not hasattr(tokenizer, "backend_tokenizer"):
        return "the model's tokenizer is none of the library `tokenizers`"
    interval = getattr(scheduler.server_args, "stream_interval", 1)
    if interval != 1:
        return f"--stream-interval is {interval}"
    return None


def _watches(scheduler: Scheduler, tokenizer: Any) -> dict[str, Watch]:
    """What is watched, by what parses an answer; nothing where a parser cannot be watched."""
    arguments = scheduler.server_args
    calls, reasoning = (getattr(arguments, name, None) for name in ("tool_call_parser", "reasoning_parser"))
    found: dict[str, Watch] = {}
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True)
    thinks = watched_reasoning(reasoning, tokenizer) if reasoning else None
    called = watched_calls(calls, tokenizer) if calls else None
    letters, think = "", None
    reasons: Passes = no_parser
    if thinks is not None:
        think, reasons = thinks
        letters = "".join(mark.strip()[0] for mark in think)
        found[CHAT] = Watch(
            tokens=tokens_with(vocabulary, letters), passes=no_parser, think=think, reasons=reasons
        )
        if not calls:
            found[CALLS] = found[CHAT]
    if called is not None and bool(reasoning) == bool(thinks):
        found[CALLS] = Watch(
            tokens=tokens_with(vocabulary, letters + called[0]),
            alone=tokens_of(vocabulary, called[1]),
            passes=called[2],
            think=think,
            reasons=reasons,
        )
    return found


def _introduce(scheduler: Scheduler, path: Path, watches: Mapping[str, Watch]) -> Vocabulary:
    """Write the tokenizer down as it is in force here. Raises: OSError."""
    tokenizer: Any = getattr(scheduler, "tokenizer")  # noqa: B009 - looked at by `_unfit`, no part of the API
    path.write_text(tokenizer.backend_tokenizer.to_str(), encoding="utf-8")
    samples = _samples(tokenizer)
    return Vocabulary(
        protocol=TOKEN_FRAMES_PROTOCOL,
        tokenizer_path=str(path),
        samples=tuple(samples),
        watches_calls=CALLS in watches,
        think=watches[CHAT].think or () if CHAT in watches else (),
        logprobs=logprob_sample(tokenizer, [token for one in samples[:4] for token in one.token_ids]),
        **plain_answers(scheduler, tokenizer),
    )


def _samples(tokenizer: Any) -> list[Sample]:
    """What SGLang's detokenizer would make of tokens from all over the vocabulary."""
    size = len(tokenizer)
    samples = []
    for number in range(_SAMPLES):
        token_ids = tuple((number * 7919 + place * 104729) % size for place in range(_SAMPLE_TOKENS))
        text = tokenizer.batch_decode(
            [list(token_ids)], skip_special_tokens=True, spaces_between_special_tokens=True
        )[0]
        samples.append(Sample(token_ids=token_ids, text=text))
    return samples
