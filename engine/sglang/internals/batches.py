"""Forming SGLang's batches from chosen requests, and joining them to the decode batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdmuxd.engine.sglang.api.types.requests import Batch, NextBatchPlan
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler


def form_from(s: Scheduler, request_ids: Iterable[str], form: Callable[[], NextBatchPlan]) -> NextBatchPlan:
    """Let SGLang form a batch from just these waiting requests, in this order."""
    by_id = {request.rid: request for request in s.waiting_queue}
    chosen = [by_id.pop(request_id) for request_id in request_ids if request_id in by_id]
    s.waiting_queue = chosen
    try:
        return form()
    finally:
        s.waiting_queue = s.waiting_queue + list(by_id.values())


def join_decode(s: Scheduler, batch: Batch) -> None:
    """A prefilled batch decodes from now on."""
    if batch.is_empty() or batch is s.running_batch:
        return
    if s.running_batch.is_empty():
        batch.batch_is_full = s.running_batch.batch_is_full
        s.running_batch = batch
    else:
        s.running_batch.merge_batch(batch)
