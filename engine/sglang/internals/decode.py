"""Decode and fused steps of SGLang's scheduler, with its own overlap scheduling: a step is launched before
the result of the one before is read, on the decode stream of the group in force."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import PrefillGraph
from pdmuxd.engine.sglang.api.types.device import Event, Tensor
from pdmuxd.engine.sglang.api.types.requests import Batch, BatchResult, Request
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.activation_memory import ActivationMemory
from pdmuxd.engine.sglang.internals.batches import divide, form_from, join_decode
from pdmuxd.engine.sglang.internals.group import GroupInForce
from pdmuxd.engine.sglang.internals.invalid_rows import InvalidRows
from pdmuxd.engine.sglang.streams.base import LaunchStreams

_ANY_LENGTH = 1 << 30
"""A chunk that no prompt fills: there would be two chunked requests else."""


@dataclass(slots=True, eq=False)
class Launched:
    """Implements LaunchedStep."""

    batch: Batch
    start: Event
    end: Event
    greatest_logits: Tensor | None = None
    """By row; None where nothing restricts the tokens."""

    @property
    def requests(self) -> Sequence[Request]:
        """SGLang's requests in the step."""
        return tuple(self.batch.reqs)

    @property
    def prompt_tokens(self) -> int:
        """New tokens of prompts in a fused step."""
        if not self.batch.forward_mode.is_extend():
            return 0
        return sum(self.batch.extend_lens) - len(self.batch.decoding_reqs or ())


class _SittingOut:
    """While SGLang forms a mixed batch, some requests leave the decode batch at the moment at which those do
    that the step in flight ends: it has admitted prompts by then, with all that decode in sight."""

    def __init__(self, s: Scheduler, request_ids: Collection[str]) -> None:
        self._s = s
        self._request_ids = request_ids
        self.batch: Batch | None = None
        """Those who left."""

    def __enter__(self) -> None:
        if self._request_ids:
            vars(self._s)["_reqs_finishing_inflight"] = self._finishing

    def __exit__(self, *_: object) -> None:
        vars(self._s).pop("_reqs_finishing_inflight", None)

    def _finishing(self, batch: Batch) -> list[Request]:
        finishing = type(self._s)._reqs_finishing_inflight(self._s, batch)
        if self.batch is None:
            self.batch = divide(self._s, batch, self._request_ids)
        return finishing


class _ChunkLimit:
    """While SGLang forms a batch, the chunked request has at most so many tokens of it."""

    def __init__(self, s: Scheduler, tokens: int | None) -> None:
        self._order = s.policy
        self._tokens = tokens

    def __enter__(self) -> None:
        if self._tokens:
            vars(self._order)["shortest_prefill_chunk_limit"] = lambda *_: self._tokens

    def __exit__(self, *_: object) -> None:
        vars(self._order).pop("shortest_prefill_chunk_limit", None)


class SchedulerDecode:
    """Implements DecodeStream."""

    def __init__(
        self,
        scheduler: Scheduler,
        streams: LaunchStreams,
        group: GroupInForce,
        invalid_rows: InvalidRows,
        memory: ActivationMemory,
    ) -> None:
        self._s = scheduler
        self._streams = streams
        self._group = group
        self._invalid_rows = invalid_rows
        self._memory = memory
        self._unsampled: tuple[Launched, Batch, BatchResult] | None = None
        """A step launched without its sampling, with SGLang's batch and result."""

    def settle(self) -> None:
        """Requests whose prompt the last fused step completed join the decode batch; ended ones leave it."""
        s = self._s
        last = s.last_batch
        if last is not None and last.forward_mode.is_extend():
            chunked = [r for r in {s.chunked_req, last.chunked_req} if r is not None]
            last_bs = last.batch_size()
            last.filter_batch(reqs_to_exclude=chunked)
            if last.batch_size() < last_bs:
                s.running_batch.batch_is_full = False
            s.last_batch = None
            join_decode(s, last)
        bs = s.running_batch.batch_size()
        s.running_batch.filter_batch()
        if s.running_batch.batch_size() < bs:
            s.running_batch.batch_is_full = False

    def launch_decode(self, without: Collection[str] = ()) -> Launched | None:
        """One decode step for all that decode but these; None if nothing is left to decode."""
        s = self._s
        waiting = len(s.waiting_queue)
        sitting_out = divide(s, s.running_batch, without) if without else None
        batch = s.update_running_batch(s.running_batch)
        self._note_retractions(waiting)
        launched = None if batch is None or batch.is_empty() else self._launch(batch)
        if sitting_out is not None:
            join_decode(s, sitting_out)
        return launched

    def launch_fused(
        self,
        request_ids: Sequence[str],
        budget_tokens: int,
        graph: PrefillGraph | None = None,  # noqa: ARG002 - SGLang captures none, so no policy asks
        *,
        decodes: bool = True,
        chunk_waits: bool = False,
        chunk_last: bool = False,
        without: Collection[str] = (),
    ) -> Launched | None:
        """One batch of the decoding requests but these, and a budget of prompt tokens, as SGLang's mixed
        chunk. Those that sit out are in its sight while it admits, and leave before it mixes.

        SGLang knows one chunked request and takes it first, always. One that is to wait is out of its sight
        while it forms the batch, unless it is about to be aborted, which is done there.

        With `chunk_last` that one has no more than the others leave, by a limit for which SGLang asks its own
        order; the others are whole however long they turn out, so that there are no two chunked requests.

        SGLang takes a row of its budget for each request in its sight that decodes. Those that sit out have
        none in the policy's. Where the budget leaves no prompt token, its chunk would have a negative length.
        """
        s = self._s
        decoding = s.running_batch.reqs if decodes else []
        rows = len(decoding)
        if without:
            rows -= sum(request.rid in without for request in decoding)
        is_full = budget_tokens <= rows
        if is_full:
            request_ids = ()
        aside, left = s.chunked_req if chunk_waits or is_full else None, None
        if chunk_last and request_ids and aside is None and s.chunked_req is not None:
            left = self._left_for_chunk(request_ids, budget_tokens - rows)
            aside = None if left else s.chunked_req
        if s._pending_chunked_abort_req is aside:
            aside = None
        any_length = chunk_last or (chunk_waits and aside is not None)
        s.chunked_prefill_size = _ANY_LENGTH if any_length else budget_tokens + len(decoding) - rows
        s.is_mixed_chunk = decodes
        waiting = len(s.waiting_queue)
        if aside is not None:
            s.chunked_req = None
        sitting_out = _SittingOut(s, without if decodes else ())
        try:
            with sitting_out, _ChunkLimit(s, left):
                plan = form_from(
                    s,
                    request_ids,
                    lambda: s.get_next_batch_to_run(running_batch=s.running_batch, last_batch=s.last_batch),
                )
        finally:
            if aside is not None:
                s.chunked_req = aside
        self._note_retractions(waiting)
        s.running_batch = plan.running_batch
        self._group.attention_owner = None
        launched = self._launch(plan.batch_to_run) if plan.batch_to_run else None
        if sitting_out.batch is not None:
            join_decode(s, sitting_out.batch)
        if launched is not None:
            self._group.hold_prefill()
        return launched

    def wait(self, launched: Launched) -> None:
        """Block until the device is done with the oldest step in flight, but for the copy of its tokens."""
        self._streams.wait(launched.end)

    def read(self, launched: Launched) -> None:
        """Stream the tokens of the oldest step in flight and end the requests that are done. Then sample the
        step behind it, if that had to wait for these tokens.

        A request that ended may still be in the step launched after it, though its KV slots are free already:
        prefill on the other stream must not be given these slots before that step is over.
        """
        s = self._s
        batch, result = s.result_queue.popleft()
        if batch is not launched.batch:
            raise EngineInvariantError("results were read out of order")
        self._invalid_rows.fail(s, batch, result, launched.greatest_logits)
        s.process_batch_result(batch, result)
        if s.result_queue and any(request.finished() for request in s.result_queue[-1][0].reqs):
            self._group.hold_prefill()
        if s.result_queue:
            self._sample()

    def _left_for_chunk(self, request_ids: Sequence[str], tokens: int) -> int:
        """Count what these leave of so many prompt tokens for the chunked request, in whole pages. With none
        it sits the step out."""
        s = self._s
        ahead = sum(
            len(request.origin_input_ids) + len(request.output_ids) - request.prefix_len
            for request in s.waiting_queue
            if request.rid in request_ids
        )
        return max(0, tokens - ahead) // s.page_size * s.page_size

    def nothing_launched(self) -> None:
        """This turn launched no decode or fused step."""
        self._s.last_batch = None

    def _note_retractions(self, waiting: int) -> None:
        """Retracted requests gave back KV slots that the step in flight still writes."""
        if len(self._s.waiting_queue) > waiting and self._s.result_queue:
            self._group.hold_prefill()

    def _launch(self, batch: Batch) -> Launched:
        s, stream = self._s, self._group.decode
        if batch.forward_mode.is_extend():
            self._memory.prepare(stream, batch.extend_num_tokens)
        start = self._streams.mark(stream)
        result = s.run_batch(batch)
        end = self._streams.mark(stream)
        s._apply_war_barrier()
        snapshot = batch.copy()
        s.result_queue.append((snapshot, result))
        s.last_batch = batch
        self._group.last_end = end
        logits = self._invalid_rows.greatest(result)
        launched = Launched(batch=snapshot, start=start, end=end, greatest_logits=logits)
        if result.delay_sample_func is not None:
            self._unsampled = (launched, batch, result)
            if len(s.result_queue) == 1:
                self._sample()
        return launched

    def _sample(self) -> None:
        """Sample the step in flight, if that was left for later. What a grammar allows next depends on the
        token before, so such a batch is sampled when that token was read; the step computes meanwhile, as in
        SGLang's own loop."""
        if self._unsampled is None:
            return
        launched, batch, result = self._unsampled
        self._unsampled = None
        self._s.launch_batch_sample_if_needed(result, batch)
        launched.greatest_logits = self._invalid_rows.greatest(result)
        launched.end = self._streams.mark(self._group.decode)
        self._group.last_end = launched.end
