"""Fused batches as one graph each. SGLang by itself captures segments and launches attention between them.

For the attention between Llama-8B's segments the host makes 32 launches, which take 9 to 20 ms for a batch
that the device may finish in 8. A whole graph is one launch. SGLang can do both and calls whole graphs
experimental: their attention must be captured with bounds instead of the batch's own sizes. They are used
where their times were measured and their answers compared (one H200, FlashAttention-3, 2026-11-22): models of
text alone with one kind of attention over whole contexts. All other models keep the segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.model import FlashAttention, Graphs, ModelRunner, PrefillGraphs

JOINING = 64
"""Requests whose prompts a fused batch may hold beside the largest batch of decode. One with more is launched
layer by layer."""
_MOST_DECODING = 256
"""Assumed where no setting says how large decode batches are captured."""

_log = logging.getLogger(__name__)


def choose_whole_graphs(runner: ModelRunner) -> None:
    """Ahead of capturing all graphs, which does what its configuration then says."""
    graphs = graphs_in_force()
    if graphs.prefill.backend == sglang().GraphBackend.BREAKABLE and captures_whole(runner):
        graphs.prefill.backend = sglang().GraphBackend.FULL
        graphs.prefill.full_prefill_max_req = (graphs.decode.max_bs or _MOST_DECODING) + JOINING
    _log.info("pdmuxd: graphs of fused batches: %s", graphs.prefill.backend)


def capture_unsplit(original: Callable[[PrefillGraphs], None], graphs: PrefillGraphs) -> None:
    """Wraps the capture of fused batches: in a whole graph, attention does not divide a context among SMs.

    The kernel that puts the parts of a divided context together would be launched for every request that the
    graph could hold: batches of up to 384 tokens took 14.9 ms instead of 9.6 (Llama-8B, one H200,
    2026-11-22). In larger batches contexts are not divided anyway.
    """
    if graphs_in_force().prefill.backend != sglang().GraphBackend.FULL:
        original(graphs)
        return
    attention = cast(FlashAttention, graphs.model_runner.attn_backend)
    given = attention.num_splits
    attention.num_splits = 1
    try:
        original(graphs)
    finally:
        attention.num_splits = given


def graphs_in_force() -> Graphs:
    """What SGLang was told of graphs, and what it made of it."""
    return sglang().get_exec().graph.cuda_graph_config


def captures_whole(runner: ModelRunner) -> bool:
    """Whether a model's attention is of the kind that was compared."""
    if type(runner.attn_backend).__name__ != "FlashAttentionBackend":
        return False
    attention, config = cast(FlashAttention, runner.attn_backend), runner.model_config
    return (
        attention.fa_impl_ver == 3
        and not attention.use_mla
        and not attention.has_local_attention
        and runner.sliding_window_size is None
        and not config.is_multimodal
        and not config.is_encoder_decoder
    )
