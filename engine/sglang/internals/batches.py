"""Forming SGLang's batches from chosen requests, and joining them to the decode batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from copy import copy

from pdmuxd.engine.sglang.api.types.requests import Batch, NextBatchPlan
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.internals.images import masks_images


def form_from(s: Scheduler, request_ids: Iterable[str], form: Callable[[], NextBatchPlan]) -> NextBatchPlan:
    """Let SGLang form a batch from just these waiting requests, in this order. Those whose grammar is ready
    now are for the next turn: SGLang would take them along, whatever the others are."""
    by_id = {request.rid: request for request in s.waiting_queue}
    chosen = [by_id.pop(request_id) for request_id in request_ids if request_id in by_id]
    s.waiting_queue = chosen
    vars(s.grammar_manager)["has_waiting_grammars"] = lambda: False
    try:
        return form()
    finally:
        del vars(s.grammar_manager)["has_waiting_grammars"]
        s.waiting_queue = s.waiting_queue + list(by_id.values())


def can_divide(s: Scheduler, batch: Batch) -> bool:
    """Whether a part of a decode batch can be computed without the rest. Penalties, grammars and processors
    of the caller's own keep state of the batch as a whole, which two parts would share."""
    sampling, model = batch.sampling_info, s.model_config
    return not (
        batch.has_grammar
        or sampling.penalizer_orchestrator.is_required
        or sampling.has_custom_logit_processor
        or model.is_encoder_decoder
        or model.is_multimodal
        or any(request.beam_group is not None for request in batch.reqs)
    )


def divide(s: Scheduler, batch: Batch, request_ids: Collection[str]) -> Batch | None:
    """Take these requests out of a decode batch: a batch of them, to be merged with it again. None, and no
    change, if it holds no others, cannot be divided, or memory is short: SGLang retracts from a whole batch.

    Both parts keep their rows of SGLang's pools, where the tokens of the step in flight will be; `input_ids`
    are built from there when they are None.
    """
    chosen = [at for at, request in enumerate(batch.reqs) if request.rid in request_ids]
    if not chosen or len(chosen) == len(batch.reqs):
        return None
    if not can_divide(s, batch) or not batch.check_decode_mem():
        return None
    rest = copy(batch)
    rest.sampling_info = copy(batch.sampling_info)
    rest.input_ids = None
    rest.filter_batch(keep_indices=chosen)
    gone = frozenset(chosen)
    batch.filter_batch(keep_indices=[at for at in range(len(batch.reqs)) if at not in gone])
    return rest


def join_decode(s: Scheduler, batch: Batch) -> None:
    """A prefilled batch decodes from now on."""
    if batch.is_empty() or batch is s.running_batch:
        return
    if masks_images(s.tp_worker.model_runner.model) and batch.multimodal_inputs is not None:
        # Its images are in KV. SGLang's Gemma 3 ends the engine where one of a fused step, which has their
        # masks set, has images and another has none.
        batch.multimodal_inputs = [None] * len(batch.reqs)
    if s.running_batch.is_empty():
        batch.batch_is_full = s.running_batch.batch_is_full
        s.running_batch = batch
    else:
        s.running_batch.merge_batch(batch)
