"""Rows of logits of which no token can be sampled: their requests fail, and the rest of the batch goes on.

A grammar may allow no token, or none but the end of an answer that `min_tokens` forbids; a model may compute
NaN. SGLang's samplers then raise for the whole batch, or take a token that the grammar does not know.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.model import LogitsOutput, ModelRunner
from pdmuxd.engine.sglang.api.types.requests import Batch, BatchResult, Penalizers, Request, SamplingInfo
from pdmuxd.engine.sglang.api.types.scheduler import Grammar, GrammarBackend, Scheduler

_FAILED = "pdmuxd_failed_because"
"""What a grammar that failed is given."""
_LONGEST = 300
"""Letters of an exception that a client is told."""
_log = logging.getLogger(__name__)
_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")


class InvalidRows:
    """Finds them before each sampling, and fails their requests when the step is read."""

    def __init__(self) -> None:
        self._last: tuple[LogitsOutput, Tensor] | None = None

    def find(
        self,
        original: Callable[..., object],
        runner: ModelRunner,
        logits_output: LogitsOutput,
        sampling_info: SamplingInfo,
        **named: object,
    ) -> object:
        """Wraps the last change of the logits before they are sampled: a row without a finite greatest value
        becomes uniform, so that whatever sampler there is takes some token. Nothing waits for the device, and
        nothing is done where no request of the batch restricts its tokens."""
        changed = original(runner, logits_output, sampling_info, **named)
        if _restricts(sampling_info):
            logits = logits_output.next_token_logits  # (rows, vocabulary), on the device
            greatest = logits.amax(dim=-1)
            is_invalid = (greatest - greatest) != 0  # NaN, if it is NaN or infinite
            logits.masked_fill_(is_invalid.unsqueeze(1), 0.0)
            self._last = logits_output, greatest.to("cpu", non_blocking=True)
        return changed

    def greatest(self, result: BatchResult) -> Tensor | None:
        """The greatest logit by row of a result that was sampled last; to be read once that is copied. None
        if it was not sampled, or nothing restricts its tokens."""
        last, self._last = self._last, None
        return last[1] if last is not None and last[0] is result.logits_output else None

    @staticmethod
    def fail(s: Scheduler, batch: Batch, result: BatchResult, greatest: Tensor | None) -> None:
        """End the requests of a batch's invalid rows, before SGLang gives the batch its tokens."""
        if greatest is None:
            return
        result.copy_done.synchronize()
        for request, logit in zip(batch.reqs, greatest.tolist(), strict=True):
            is_open = not request.finished() and request.inflight_middle_chunks <= 0
            if is_open and not math.isfinite(logit):
                _fail(s, batch, request, _why(request, logit))


def _restricts(info: SamplingInfo) -> bool:
    """Whether a row may allow no token: by a grammar, or since each would end the answer too soon."""
    penalties: Penalizers | None = info.penalizer_orchestrator  # None where they were summed up ahead
    is_penalized = info.acc_additive_penalties is not None or (penalties and penalties.is_required)
    return bool(info.grammars or is_penalized)


def restrict(original: Callable[..., None], info: SamplingInfo) -> None:
    """Wraps asking the grammars of a batch for their next tokens, on the host. Where one raises, its row
    allows no token, so that its request fails alone, and the others have theirs."""
    try:
        original(info)
        return
    except Exception:
        failed = [row for row, grammar in enumerate(info.grammars or ()) if _raises(info, grammar)]
        if not failed:
            raise
    original(info)  # it asks no grammar that has finished
    for row in failed:
        info.grammar_mask.vocab_mask[row] = 0


def _raises(info: SamplingInfo, grammar: Grammar | None) -> bool:
    if not grammar or grammar.finished or grammar.is_terminated():
        return False
    mask = grammar.allocate_vocab_mask(info.vocab_size, 1, "cpu")
    try:
        grammar.fill_vocab_mask(mask, 0)
    except Exception as error:
        _log.exception("pdmuxd: a grammar failed, and its request with it")
        grammar.finished = True
        vars(grammar)[_FAILED] = f"{type(error).__name__}: {error}"[:_LONGEST]
        return True
    return False


def _fail(s: Scheduler, batch: Batch, request: Request, why: str) -> None:
    reason = request.to_finish or sglang().Aborted(why, 400, "BadRequestError")
    if request.grammar is not None:
        request.grammar.finished = True  # the step in flight does not ask it again
    if batch.forward_mode.is_extend():
        request.discard_output_reason = reason
        return
    request.to_finish = reason
    request.update_finish_state(0)
    sglang().release_kv_cache(request, s.tree_cache, checkpoint=False)
    request.time_stats.set_completion_time()


def _why(request: Request, greatest_logit: float) -> str:
    if greatest_logit != -math.inf:
        return "the model computed no probabilities for this request: its logits are not numbers"
    params = request.sampling_params
    name = next((name for name in _GRAMMARS if getattr(params, name) is not None), None)
    if (failed_because := getattr(request.grammar, _FAILED, None)) is not None:
        return f"the grammar in {name} failed: {failed_because}"
    if name is None:
        return "min_new_tokens forbids every token here, since stop_token_ids has all of them"
    ends_early = params.min_new_tokens > len(request.output_ids)
    forbids = ", besides such as min_new_tokens forbids" if ends_early else ""
    return f"the grammar in {name} allows no token here{forbids}"


def refuse_empty(
    original: Callable[..., Grammar | None],
    backend: GrammarBackend,
    key: tuple[str, str],
    *args: object,
    **named: object,
) -> Grammar | None:
    """Wraps compiling a grammar, in a thread of SGLang's: one that allows no first token is refused as one
    that does not compile."""
    grammar = original(backend, key, *args, **named)
    invalid = sglang().InvalidGrammar
    if grammar is None or isinstance(grammar, invalid):
        return grammar
    mask = grammar.allocate_vocab_mask(backend.vocab_size, 1, "cpu")  # a bit for each token that is allowed
    grammar.fill_vocab_mask(mask, 0)
    return grammar if mask.any() else invalid("it allows no token")
