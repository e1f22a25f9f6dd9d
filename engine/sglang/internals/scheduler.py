"""SGLang's scheduler as the loop sees it, with no decision taken here.

`state.py` has what there is, `decode.py` and `layerwise.py` launch on the two streams of `group.py`. Batches,
requests and results are SGLang's objects, and the loop does not look into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from pdmuxd.engine.loop.requests import RefusalCause, refusal_message
from pdmuxd.engine.sglang.api.symbols import check_scheduler, sglang
from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.api.types.scheduler import OverlapBookkeeping, Scheduler
from pdmuxd.engine.sglang.internals.activation_memory import ActivationMemory
from pdmuxd.engine.sglang.internals.collectives import PrefillCollectives
from pdmuxd.engine.sglang.internals.decode import SchedulerDecode
from pdmuxd.engine.sglang.internals.group import GroupInForce
from pdmuxd.engine.sglang.internals.invalid_rows import InvalidRows
from pdmuxd.engine.sglang.internals.layerwise import SchedulerPrefill
from pdmuxd.engine.sglang.internals.room import Room
from pdmuxd.engine.sglang.internals.state import SchedulerState
from pdmuxd.engine.sglang.streams.base import LaunchStreams


class SchedulerPort:
    """One scheduler process. All methods are for the thread of its event loop.

    Raises: EngineError if the scheduler is not as the loop needs it.
    """

    def __init__(
        self, scheduler: Scheduler, streams: LaunchStreams, invalid_rows: InvalidRows | None = None
    ) -> None:
        check_scheduler(scheduler)
        _take_over(cast(OverlapBookkeeping, scheduler))
        self._s = scheduler
        self._group = GroupInForce(scheduler, streams)
        self.state = SchedulerState(scheduler)
        rows = invalid_rows or InvalidRows()
        self.activation_memory = ActivationMemory(
            lambda: torch.cuda.mem_get_info()[0], torch.cuda.empty_cache
        )
        self.decode = SchedulerDecode(scheduler, streams, self._group, rows, self.activation_memory)
        self.collectives = PrefillCollectives()
        self._room = Room(scheduler)
        self.prefill = SchedulerPrefill(
            scheduler, streams, self._group, self.collectives, rows, self._room, self.activation_memory
        )

    @property
    def stream_group(self) -> int:
        """Index of the group whose streams are in force."""
        return self._group.index

    def use_group(self, index: int) -> None:
        """Put the streams of a group in force."""
        self._group.use(index)

    def reused_tokens(self, request: Request) -> int:
        """Look a waiting request's tokens up in the prefix cache."""
        request.init_next_round_input(self._s.tree_cache)
        return request.prefix_len

    def take_input(self) -> None:
        """Receive requests and controls, as every SGLang loop does; make room for long prompts before."""
        s = self._s
        self._room.make()
        s.ingest_requests()
        if s.grammar_manager.has_waiting_grammars():
            for request in s.grammar_manager.get_ready_grammar_requests():
                s._add_request_to_queue(request)

    def idle(self) -> None:
        """Nothing is launched or pending: SGLang's housekeeping and leak checks."""
        s = self._s
        s.last_batch = None
        s._sched_idled = True
        s.on_idle()

    def refuse(self, refusals: Sequence[tuple[str, RefusalCause]]) -> None:
        """End waiting requests with an error that names the cause, as SGLang ends those that its own queue
        has no room for."""
        s = self._s
        # SGLang ends every request whose id begins with the one that is given.
        waiting = {request.rid for request in s.waiting_queue}
        for rid, cause in refusals:
            if rid not in waiting or any(other.startswith(rid) for other in waiting if other != rid):
                continue
            message = refusal_message(cause)
            reason: dict[str, object] = {"type": "abort", "status_code": 503, "message": message}
            s.abort_request(sglang().AbortRequest(rid=rid, finished_reason=reason, abort_message=message))

    def agree(self, plan: Any) -> Any:
        """Rank 0's plan of this turn, on every rank."""
        if self.state.tp_size == 1:
            return plan
        carrier = [plan]
        group = self._s.tp_group
        torch.distributed.broadcast_object_list(carrier, src=group.ranks[0], group=self._s.tp_cpu_group)
        return carrier[0]

    def gather(self, own: Any) -> list[Any]:
        """What each rank has, in their order, on every rank."""
        if self.state.tp_size == 1:
            return [own]
        everyones: list[Any] = [None] * self.state.tp_size
        torch.distributed.all_gather_object(everyones, own, group=self._s.tp_cpu_group)
        return everyones

    def forget_prefill_metadata(self) -> None:
        """The prefill attention backend was used by someone else."""
        self._group.attention_owner = None


def _take_over(s: OverlapBookkeeping) -> None:
    """Switch SGLang's overlap bookkeeping on, which `--enable-pdmux` insists on being off at start."""
    s.enable_overlap = s.tp_worker.enable_overlap = True
    s.enable_skip_finishing_decode = True
    s.batch_record_buf = [None] * 2
    s.batch_record_ct = 0
    object.__setattr__(s.batch_result_processor, "enable_overlap", True)  # it is frozen
