"""Fused batches as one graph each, where SGLang would capture segments and launch attention between them.

Between the segments of Llama-8B the host launches 32 attention calls, 9 to 20 ms of its time for a batch
that the device may do in 8; a whole graph is one launch. SGLang has both and calls whole ones experimental:
their attention must be captured with bounds instead of the batch's own sizes. They are taken where that was
measured and its answers compared (one H200, FlashAttention-3, 2026-11-22): attention of one kind over whole
contexts, of text alone. Everything else keeps the segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend
from sglang.srt.runtime_context import get_exec

RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner.init_cuda_graphs"
"""Captures all graphs."""
CAPTURE = "sglang.srt.model_executor.runner.prefill_cuda_graph_runner.PrefillCudaGraphRunner.capture"
"""Captures those of fused batches."""
JOINING = 64
"""Requests whose prompts a fused batch may hold beside the largest batch of decode. One with more is launched
layer by layer."""
_MOST_DECODING = 256
"""Where nothing says how large decode batches are captured."""

_log = logging.getLogger(__name__)


def choose_whole_graphs(runner: Any, *_args: Any, **_kwargs: Any) -> None:
    """Ahead of RUNNER, which captures what its configuration then says."""
    graphs = get_exec().graph.cuda_graph_config
    if graphs.prefill.backend == Backend.BREAKABLE and captures_whole(runner):
        graphs.prefill.backend = Backend.FULL
        graphs.prefill.full_prefill_max_req = (graphs.decode.max_bs or _MOST_DECODING) + JOINING
    _log.info("pdmuxd: graphs of fused batches: %s", graphs.prefill.backend)


def capture_unsplit(original: Callable[..., Any], graphs: Any, *args: Any, **kwargs: Any) -> Any:
    """Around CAPTURE: a whole graph's attention does not divide a context among SMs.

    What puts the parts of a divided context together is launched for every request that the graph could hold:
    batches of up to 384 tokens took 14.9 ms instead of 9.6 (Llama-8B, one H200, 2026-11-22). Larger ones are
    not divided anyway.
    """
    if get_exec().graph.cuda_graph_config.prefill.backend != Backend.FULL:
        return original(graphs, *args, **kwargs)
    attention = graphs.model_runner.attn_backend
    given = attention.num_splits
    attention.num_splits = 1
    try:
        return original(graphs, *args, **kwargs)
    finally:
        attention.num_splits = given


def captures_whole(runner: Any) -> bool:
    """Whether a model's attention is of the kind that was compared."""
    attention, config = runner.attn_backend, runner.model_config
    return (
        type(attention).__name__ == "FlashAttentionBackend"
        and attention.fa_impl_ver == 3
        and not attention.use_mla
        and not attention.has_local_attention
        and runner.sliding_window_size is None
        and not config.is_multimodal
        and not config.is_encoder_decoder
    )
