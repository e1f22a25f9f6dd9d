"""The daemon's end of the token frames: one engine's scheduler, and the streams that its tokens are for."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from pdmuxd.daemon.tokens.choice import Choice, Mismatch
from pdmuxd.daemon.tokens.counts import FallbackCause, TokenCounts
from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Vocabulary
from pdmuxd.daemon.tokens.forms import Shape
from pdmuxd.daemon.tokens.logprobs import LogprobChoice, LogprobWriter
from pdmuxd.daemon.tokens.merge import MergedStream
from pdmuxd.daemon.tokens.outbox import Outbox, deliver
from pdmuxd.daemon.tokens.pacing import PATIENCE_RATIO
from pdmuxd.daemon.tokens.plain import PLAIN, Direct
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link import token_frames
from pdmuxd.engine.link.token_frames import READY, TOKEN_FRAMES_PROTOCOL, TokenStep

_PERIODS = 32
_LONGEST_PERIOD_S = 1.0
"""What is longer is no step but a pause between answers."""
_DATAGRAMS_AT_A_TIME = 16
"""Read in one turn of the event loop, at most."""
_ALL_SHAPES_PROTOCOL = 2
"""Before it, an engine hands over single plain answers of OpenAI's API only: an older daemon started it."""
_PROTOCOLS = (1, TOKEN_FRAMES_PROTOCOL)

log = structlog.get_logger("pdmuxd.tokens")


class TokenReceiver:
    """Listens for one engine. Use it in one event loop; `close` it there."""

    def __init__(self, path: Path, *, max_unsent_bytes: int, counts: TokenCounts | None = None) -> None:
        """Raises: OSError if the socket cannot be made."""
        self.counts = counts or TokenCounts()
        self._path = path
        self._max_unsent_bytes = max_unsent_bytes
        self._loop = asyncio.get_running_loop()
        self._listening = token_frames.listen(path)
        self._engine: socket.socket | None = None
        self._buffer = bytearray(token_frames.MAX_DATAGRAM_BYTES)
        self._view = memoryview(self._buffer)
        self._loading: asyncio.Task[None] | None = None
        self._vocabulary: Vocabulary | None = None
        self._told: token_frames.Vocabulary | None = None
        self._logprobs: LogprobWriter | None = None
        self._distrusts_chat = False
        self._by_request: dict[str, MergedStream] = {}
        self._by_number: dict[int, Choice] = {}
        self._numbers: dict[str, list[int]] = {}
        self._loop.add_reader(self._listening, self._accept)
        self.counts.hold(self._held_bytes)
        self._touched: list[Outbox] = []
        """With something new for their clients since the last look."""
        self._held: list[Outbox] = []
        """Whose parts wait for the next step."""
        self._periods_s: deque[float] = deque(maxlen=_PERIODS)
        """Between the last steps."""
        self._step_s = 0.0
        self._due: asyncio.TimerHandle | None = None
        self.steps = 0
        self.refusals = 0
        """Engines whose tokens could not be used."""
        self._next_step: int | None = None
        """The number of the next one, as far as the engine counts them."""
        self.mismatches = 0
        """Answers whose tokens' text was not the front end's."""

    @property
    def open_streams(self) -> int:
        """Answers that somebody waits for."""
        return len(self._by_request)

    @property
    def is_ready(self) -> bool:
        """Whether tokens of new answers can be used."""
        return self._vocabulary is not None

    def takes(self, asked: Direct) -> bool:
        """Whether tokens of such an answer can be used."""
        told = self._told
        if self._vocabulary is None or told is None or (asked.is_chat and self._distrusts_chat):
            return False
        if told.protocol < _ALL_SHAPES_PROTOCOL:
            return asked._replace(is_chat=False) == PLAIN and (told.plain_chat or not asked.is_chat)
        if asked.has_tools and told.has_tool_parser and (asked.is_forced or not told.watches_calls):
            return False
        if asked.has_logprobs and (self._logprobs is None or (asked.has_tools and told.has_tool_parser)):
            # A parser divides a step's text into events, of which SGLang gives the first one all values.
            return False
        if asked.is_chat and not told.plain_chat:
            # Usage counts the tokens of reasoning too.
            return (
                bool(told.think)
                and asked.shape in (Shape.OPENAI, Shape.MESSAGES)
                and not (asked.is_counted or asked.has_logprobs)
            )
        match asked.shape:
            case Shape.RESPONSES:
                return told.plain_responses
            case Shape.GENERATE:
                return told.plain_generate
            case _:
                return True

    def open(self, request_id: str, asked: Direct = PLAIN, *, tbt_target_s: float = 0.0) -> MergedStream:
        """The stream of an answer that is about to be asked for; `leave` it in the end.

        On a busy host its events may wait for others as long as this target allows.
        """
        told, logprobs = self._told, self._logprobs if asked.has_logprobs else None
        think = told.think if told is not None and asked.is_chat else ()
        stream = MergedStream(
            asked,
            is_parsed=bool(think) or (asked.has_tools and told is not None and told.has_tool_parser),
            think=think,
            logprobs=logprobs,
            tells_all=asked.is_chat and told is not None and told.has_tool_parser,
            max_unsent_bytes=self._max_unsent_bytes,
            before_event=self.read,
            on_unread=self._count_unread,
            on_mismatch=self._distrust,
        )
        stream.outbox.patience_s = PATIENCE_RATIO * tbt_target_s
        self._by_request[request_id] = stream
        return stream

    def leave(self, request_id: str) -> None:
        """Nobody waits for these tokens any more."""
        self._by_request.pop(request_id, None)
        for number in self._numbers.pop(request_id, ()):
            self._by_number.pop(number, None)

    def close(self) -> None:
        """Let go of the socket. Streams go on with what the front end says."""
        self.counts.release(self._held_bytes)
        self._lose()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def read(self) -> None:
        """Use what has arrived. Anything that is not understood ends the connection."""
        before = self.steps
        try:
            self._read_datagrams()
        finally:
            touched, self._touched = self._touched, []
            if self._held or self.counts.pace.steps > 1:
                touched = self._hold(touched, new_steps=self.steps - before)
            self.counts.pace.writing_s += deliver(touched)

    def _hold(self, touched: list[Outbox], *, new_steps: int) -> list[Outbox]:
        """Choose those to write now; others wait for the next step, if that comes in time for them."""
        pace, now_s = self.counts.pace, time.monotonic()
        if new_steps:
            if now_s - self._step_s < _LONGEST_PERIOD_S:
                self._periods_s.append(now_s - self._step_s)
            self._step_s = now_s
        next_s = now_s + max(self._periods_s, default=math.inf)
        for outbox in self._held:
            outbox.held_steps += new_steps
        for outbox in touched:
            outbox.held_steps = max(1, new_steps)
        waiting: list[Outbox] = []
        ready: list[Outbox] = []
        for outbox in (*self._held, *touched):
            may_wait = outbox.held_steps < pace.steps and next_s <= outbox.written_s + outbox.patience_s
            (waiting if may_wait and outbox.held_bytes else ready).append(outbox)
        pace.held += len(waiting)
        self._held = list(dict.fromkeys(waiting))
        self._set_due()
        return ready

    def _set_due(self) -> None:
        """The next step may come later than all that came before it."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._held:
            due_s = min(outbox.written_s + outbox.patience_s for outbox in self._held)
            self._due = self._loop.call_at(due_s, self._write_held)

    def _write_held(self) -> None:
        held, self._held, self._due = self._held, [], None
        self.counts.pace.writing_s += deliver(held)

    def _read_datagrams(self) -> None:
        for _ in range(_DATAGRAMS_AT_A_TIME):
            if self._engine is None:
                return
            try:
                size = self._engine.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                size = 0
            if not size:
                self._lose()
                return
            try:
                message = token_frames.decode(self._view[:size])
            except msgspec.DecodeError as error:
                log.warning("tokens of the engine cannot be read", reason=str(error))
                self._lose()
                return
            if isinstance(message, TokenStep):
                self._step(message)
            else:
                self._meet(message)

    def _accept(self) -> None:
        try:
            end, _ = self._listening.accept()
        except OSError:
            return
        if not token_frames.is_own_user(end):
            log.warning("a process of another user wanted to send tokens")
            end.close()
            return
        self._lose()
        end.setblocking(False)
        self._engine = end
        self._loop.add_reader(end, self.read)

    def _lose(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        if self._engine is not None:
            self._loop.remove_reader(self._engine)
            self._engine.close()
            self._engine = None
        self._vocabulary = self._told = self._logprobs = self._next_step = None
        self._write_held()
        self._set_due()
        self._fall_back(FallbackCause.DISCONNECTED)

    def _fall_back(self, cause: FallbackCause) -> None:
        """No more tokens come for the answers under way."""
        self.counts.fallbacks[cause] += len(self._by_number)
        self._by_number.clear()
        self._numbers.clear()

    def _held_bytes(self) -> int:
        return sum(stream.held_bytes for stream in tuple(self._by_request.values()))

    def _check_number(self, number: int) -> None:
        expected = self._next_step
        if expected is not None and number > expected:
            self.counts.lost_steps += number - expected
            self._fall_back(FallbackCause.LOST)
        self._next_step = number + 1 if number else None

    def _meet(self, message: token_frames.Vocabulary) -> None:
        if message.protocol not in _PROTOCOLS:
            self._refuse(f"its tokens come by protocol {message.protocol}, not {TOKEN_FRAMES_PROTOCOL}")
            return
        if self._loading is None:
            self._loading = self._loop.create_task(self._load(message), name="load-tokenizer")

    async def _load(self, message: token_frames.Vocabulary) -> None:
        path = Path(message.tokenizer_path)
        try:
            if path.parent != self._path.parent:
                raise EngineError(f"the engine's tokenizer is not beside its socket: {path}")
            vocabulary = await asyncio.to_thread(Vocabulary, path, message.samples)
        except EngineError as error:
            self._refuse(str(error))
            return
        if self._engine is None:
            return
        try:
            self._engine.send(READY)
        except OSError:
            self._lose()
            return
        self._vocabulary, self._told = vocabulary, message
        self._logprobs = _writer_of(vocabulary, message)
        self._distrusts_chat = False
        log.info("tokens come from the engine's scheduler", plain_chat=message.plain_chat)

    def _step(self, step: TokenStep) -> None:
        self.steps += 1
        vocabulary = self._vocabulary
        if vocabulary is None:
            return
        self._check_number(step.number)
        by_number = self._by_number
        for begun in step.begun:
            stream = self._by_request.get(begun.request_id)
            if stream is None:
                continue
            text = IncrementalText(vocabulary, begun.context, skip_special_tokens=begun.skip_special_tokens)
            choice = by_number[begun.stream] = stream.choice(begun.part)
            self._numbers.setdefault(begun.request_id, []).append(begun.stream)
            choice.begin(text, text.push(begun.token_ids), begun.token_ids)
        for number, rows in step.logprobs:
            known = by_number.get(number)
            if isinstance(known, LogprobChoice):
                known.take_logprobs(rows)
        touched, tokens = self._touched, 0
        for number, token_id in zip(step.streams, step.token_ids, strict=False):
            known = by_number.get(number)
            if known is not None:
                tokens += 1
                if known.push_one(token_id):
                    touched.append(known.outbox)
        for number, token_ids in step.several:
            known = by_number.get(number)
            if known is not None:
                tokens += len(token_ids)
                if known.push(token_ids):
                    touched.append(known.outbox)
        for number, token_ids in step.heard:
            known = by_number.get(number)
            if known is not None:
                known.hear_tokens(token_ids)
        for number, token_id in step.last:
            known = by_number.get(number)
            if known is not None:
                tokens += 1
                if known.push_last(token_id):
                    touched.append(known.outbox)
        self.counts.tokens += tokens

    def _refuse(self, reason: str) -> None:
        self.refusals += 1
        log.warning("answers go through the engine's front end", reason=reason)

    def _count_unread(self) -> None:
        self.counts.fallbacks[FallbackCause.UNREAD] += 1

    def _distrust(self, mismatch: Mismatch) -> None:
        self.mismatches += 1
        self.counts.fallbacks[FallbackCause.MISMATCH] += 1
        if self.mismatches == 1:
            log.warning("the text of tokens is not what the engine's front end says", where=mismatch.value)
        if mismatch is Mismatch.FIRST:
            self._distrusts_chat = True


def _writer_of(vocabulary: Vocabulary, message: token_frames.Vocabulary) -> LogprobWriter | None:
    """None, with a line in the log, where log probabilities would be written otherwise than by SGLang."""
    sample = message.logprobs
    if sample is None:
        return None
    writer = LogprobWriter(vocabulary, sample)
    if writer.is_as(sample):
        return writer
    log.warning("answers with log probabilities go through the engine's front end")
    return None


def open_receiver(
    path: Path,
    *,
    max_unsent_bytes: int,
    counts: TokenCounts | None = None,
    make: Callable[..., TokenReceiver] = TokenReceiver,
) -> TokenReceiver | None:
    """A receiver, or None with a line in the log: the front end answers then."""
    try:
        return make(path, max_unsent_bytes=max_unsent_bytes, counts=counts)
    except OSError as error:
        log.warning("answers go through the engine's front end", path=str(path), reason=error.strerror)
        return None
