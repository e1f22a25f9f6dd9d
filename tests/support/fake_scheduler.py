"""An EnginePort without SGLang: the same queues and overlap, with tokens that are numbers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fake_device import FakeEvent, FakeStreams

from pdmuxd.engine.core.types import NO_DECODE, DecodeShape
from pdmuxd.engine.loop.step_plan import StepPlan


class FINISH_ABORT:  # noqa: N801 - SGLang's name, which the ledger looks at
    pass


class FINISH_LENGTH:  # noqa: N801 - SGLang's name
    pass


@dataclass(eq=False)
class FakeRequest:
    """What the loop and the ledger read of a request."""

    rid: str
    origin_input_ids: list[int]
    wanted_tokens: int
    sampling_params: Any
    output_ids: list[int] = field(default_factory=list)
    extend_end: int = 0
    to_finish: object = None
    finished_reason: object = None
    is_whole: bool = False

    @classmethod
    def make(cls, name: str, tokens: int, outputs: int, tenant: str = "acme", **fields: Any) -> FakeRequest:
        params = SimpleNamespace(custom_params={"pdmuxd_tenant": tenant})
        return cls(name, [7] * tokens, outputs, params, **fields)

    @property
    def tokens(self) -> int:
        return len(self.origin_input_ids) + len(self.output_ids)

    def finished(self) -> bool:
        return self.finished_reason is not None

    def give_token(self) -> None:
        if not self.finished():
            self.output_ids.append(len(self.output_ids))
            if self.to_finish is not None:
                self.finished_reason = self.to_finish
            elif len(self.output_ids) >= self.wanted_tokens:
                self.finished_reason = FINISH_LENGTH()


@dataclass(eq=False)
class FakeBatch:
    reqs: list[FakeRequest]
    layers: int = 0
    end: FakeEvent | None = None


@dataclass(eq=False)
class FakeStep:
    requests: tuple[FakeRequest, ...]
    start: FakeEvent
    end: FakeEvent
    decoding: int = 0
    completed: tuple[FakeRequest, ...] = ()
    """Whose prompt a fused step completes."""
    prompt_tokens: int = 0

    @property
    def is_extend(self) -> bool:
        """Whether it holds prompt tokens."""
        return self.decoding < len(self.requests)


class FakePort:
    """Implements EnginePort and all its parts; `log` has every launch and what became of it, in order."""

    layers = 4
    kv_capacity_tokens = 100_000
    cached_tokens = 0

    def __init__(self, streams: FakeStreams, *, first: bool = True, wire: deque[Any] | None = None) -> None:
        self._streams = streams
        self.is_first_rank = first
        self.tp_size = 1 if wire is None else 2
        self._wire = wire
        self.is_stopping = self.is_paused = False
        self.stream_group = 0
        self.waiting: list[FakeRequest] = []
        self.running: list[FakeRequest] = []
        self.chunked_request: FakeRequest | None = None
        self.inbox: deque[Callable[[], None]] = deque()
        self.log: list[tuple[Any, ...]] = []
        self.unread: deque[FakeStep] = deque()
        self.most_unread = 0
        self.turns: list[Any] = []
        self.looked_up: list[str] = []
        self.cache: dict[str, int] = {}
        """Reused tokens by request."""
        self.aborted_chunked: FakeRequest | None = None
        """The request in chunks, if it is to be aborted: SGLang does that when it forms the next batch."""
        self.on_release: Callable[[FakeRequest], object] = lambda _: None
        """Whom SGLang tells that it lets go of an aborted request."""
        self.does_not_fit: set[str] = set()
        self.memory_tokens = math.inf
        """What a prefill may have for which no memory has to be given back."""
        self.held: list[str] = []
        """Whose first token was not sent yet."""
        self.after_layers: Callable[[], None] = lambda: None
        """What the device does meanwhile."""
        self.last: FakeStep | None = None

    @property
    def state(self) -> FakePort:
        return self

    @property
    def decode(self) -> FakePort:
        return self

    @property
    def prefill(self) -> FakePort:
        return self

    @property
    def kv_free_tokens(self) -> int:
        return self.kv_capacity_tokens - sum(request.tokens for request in self.running)

    @property
    def chunked_end(self) -> int:
        return self.chunked_request.extend_end

    def still_waiting(self, request_ids: Sequence[str]) -> set[str]:
        return {request.rid for request in self.waiting}

    def decode_contexts(self) -> list[tuple[str, int]]:
        return [(request.rid, request.tokens) for request in self.running]

    def decode_shape(self, without: Collection[str] = ()) -> DecodeShape:
        decoding = [request for request in self.running if request.rid not in without]
        if not decoding:
            return NO_DECODE
        return DecodeShape(bs=len(decoding), reused_tokens=sum(r.tokens for r in decoding))

    def reused_tokens(self, request: FakeRequest) -> int:
        self.looked_up.append(request.rid)
        return self.cache.get(request.rid, 0)

    # --- a turn

    def take_input(self) -> None:
        while self.inbox:
            self.inbox.popleft()()

    def idle(self) -> None:
        self.log.append(("idle",))

    def agree(self, plan: Any) -> Any:
        if self._wire is not None and self.is_first_rank:
            self._wire.append(plan)
        agreed = plan if self.is_first_rank or self._wire is None else self._wire.popleft()
        if isinstance(agreed, StepPlan):
            self.turns.append(agreed)
        return agreed

    def refuse(self, refusals: Sequence[tuple[str, Any]]) -> None:
        """The request leaves the queue, as SGLang's own do when it ends them there."""
        gone = {name for name, _ in refusals}
        self.log.append(("refused", *(request.rid for request in self.waiting if request.rid in gone)))
        self.waiting = [request for request in self.waiting if request.rid not in gone]

    def use_group(self, index: int) -> None:
        old, new = self._streams.groups[self.stream_group], self._streams.groups[index]
        self._streams.order(new.decode, old.decode)
        self._streams.order(new.prefill, old.prefill)
        self.stream_group = index
        self.log.append(("group", index))

    def settle(self) -> None:
        if self.last is not None and self.last.is_extend:
            self.running += [request for request in self.last.completed if request not in self.running]
            self.last = None
        self.running = [request for request in self.running if not request.finished()]

    # --- the decode stream

    def launch_decode(self, without: Collection[str] = ()) -> FakeStep | None:
        self.running = [request for request in self.running if not request.finished()]
        decoding = tuple(request for request in self.running if request.rid not in without)
        if not decoding:
            return None
        self.log.append(("decode", *(request.rid for request in decoding)))
        return self._launch(decoding)

    def launch_fused(
        self,
        request_ids: Sequence[str],
        budget_tokens: int,
        graph: Any = None,
        *,
        decodes: bool = True,
        chunk_waits: bool = False,
        chunk_last: bool = False,
        without: Collection[str] = (),
    ) -> FakeStep | None:
        if self.aborted_chunked is not None:
            gone, self.aborted_chunked, self.chunked_request = self.aborted_chunked, None, None
            gone.finished_reason = FINISH_ABORT()
            self.on_release(gone)
            chunk_waits = False
        if chunk_waits:
            aside, self.chunked_request = self.chunked_request, None
            try:
                return self.launch_fused(request_ids, 1 << 30, graph, decodes=decodes, without=without)
            finally:
                assert self.chunked_request is None, "two requests in chunks"
                self.chunked_request = aside
        decoding = tuple(
            request
            for request in self.running
            if decodes and not request.finished() and request.rid not in without
        )
        left = budget_tokens - len(decoding)
        by_id = {request.rid: request for request in self.waiting}
        queue = [by_id[name] for name in request_ids if name in by_id and name not in self.does_not_fit]
        if self.chunked_request is not None and left > 0:
            queue.insert(len(queue) if chunk_last else 0, self.chunked_request)
            self.chunked_request = None
        prompt_tokens, timing, completed = max(0, left), [], []
        for request in queue:
            if left <= 0:
                break
            start = request.extend_end or self.cache.get(request.rid, 0)
            request.extend_end = min(request.tokens, start + left)
            left -= request.extend_end - start
            timing.append(request)
            if request.extend_end == request.tokens:
                completed.append(request)
            else:
                self.chunked_request = request
        self.waiting = [request for request in self.waiting if request not in timing]
        if not timing and not decoding:
            return None
        names = [request.rid for request in (*timing, *decoding)]
        self.log.append(("fused", budget_tokens, *names))
        step = self._launch((*timing, *decoding), decoding=len(decoding), completed=tuple(completed))
        step.prompt_tokens = prompt_tokens - max(0, left)
        return step

    def wait(self, launched: FakeStep) -> None:
        """Only once the device is done with it: the launch behind is what keeps it busy meanwhile."""
        if launched.end.done_s is None:
            self._streams.finish(launched.end)

    def read(self, launched: FakeStep) -> None:
        assert self.unread.popleft() is launched, "results were read out of order"
        self.log.append(("read", *(request.rid for request in launched.requests)))
        decoding = launched.requests[len(launched.requests) - launched.decoding :]
        for request in (*launched.completed, *decoding):
            request.give_token()

    def nothing_launched(self) -> None:
        self.last = None

    def _launch(
        self,
        requests: tuple[FakeRequest, ...],
        decoding: int | None = None,
        completed: tuple[FakeRequest, ...] = (),
    ) -> FakeStep:
        stream = self._streams.groups[self.stream_group].decode
        start, end = self._streams.mark(stream), self._streams.mark(stream)
        count = len(requests) if decoding is None else decoding
        step = FakeStep(requests=requests, start=start, end=end, decoding=count, completed=completed)
        self.unread.append(step)
        self.most_unread = max(self.most_unread, len(self.unread))
        self.last = step
        return step

    # --- layer-wise prefill

    def form_prefill(self, request_ids: Sequence[str], graph: Any = None) -> FakeBatch | None:
        by_id = {request.rid: request for request in self.waiting}
        timing = [by_id[name] for name in request_ids if name in by_id and name not in self.does_not_fit]
        self.waiting = [request for request in self.waiting if request not in timing]
        return FakeBatch(timing) if timing else None

    def waits_for_device(self, new_tokens: int, stream_group: int) -> bool:
        assert stream_group < len(self._streams.groups)
        return new_tokens > self.memory_tokens

    def launch_layers(
        self, batch: FakeBatch, layers: int, slices: int = 1
    ) -> tuple[FakeEvent, FakeEvent, Any]:
        stream = self._streams.groups[self.stream_group].prefill
        self.log.append(("layers", layers, *(request.rid for request in batch.reqs)))
        start, batch.end = self._streams.mark(stream), self._streams.mark(stream)
        batch.layers += layers
        self.after_layers()
        return start, batch.end, ("result" if batch.layers == self.layers * slices else None)

    def finish_prefill(self, batch: FakeBatch, result: Any, end: FakeEvent, *, hold: bool) -> None:
        assert result == "result"
        assert end.done_s is not None, "merged before the device was done"
        self.log.append(("finish", *(request.rid for request in batch.reqs)))
        names = [request.rid for request in batch.reqs]
        if hold:
            self.held += names
        else:
            self.log.append(("first", *names))
        self._streams.order_after(self._streams.groups[self.stream_group].decode, end)
        for request in batch.reqs:
            request.give_token()
        self.running += [request for request in batch.reqs if not request.finished()]

    def release_tokens(self) -> None:
        if self.held:
            self.log.append(("first", *self.held))
            self.held = []

    def is_abandoned(self, batch: FakeBatch) -> bool:
        return all(request.to_finish is not None for request in batch.reqs)

    def drop_prefill(self, batch: FakeBatch) -> None:
        assert batch.end is None or batch.end.done_s is not None, "its KV was given back under the kernels"
        self.log.append(("drop", *(request.rid for request in batch.reqs)))
        for request in batch.reqs:
            request.finished_reason = request.to_finish
