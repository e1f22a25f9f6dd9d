"""Requests, and the batches that they are computed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pdmuxd.engine.sglang.api.types.device import Event, Tensor
from pdmuxd.engine.sglang.api.types.memory import KvAllocator, PrefixCache, RequestPool
from pdmuxd.engine.sglang.api.types.model import ModelConfig


class RequestTimes(Protocol):
    """When a request got how far, for SGLang's own metrics."""

    def set_completion_time(self) -> None: ...


class SamplingParams(Protocol):
    """How one request's tokens are chosen."""

    custom_params: dict[str, Any] | None
    max_new_tokens: int | None
    min_new_tokens: int
    top_k: int
    logit_bias: object
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    json_schema: object
    regex: object
    ebnf: object
    structural_tag: object

    def __init__(self, *, temperature: float, max_new_tokens: int, ignore_eos: bool) -> None: ...

    def normalize(self, tokenizer: None, /) -> None: ...


class TakenRequest(Protocol):
    """`TokenizedGenerateReqInput`, or the `Req` that is made of it."""

    rid: str


class RequestKv(Protocol):
    """`ReqKvInfo`: what a request holds of the KV pool."""

    cache_protected_len: int
    """Tokens, from its first on, whose KV belongs to the prefix cache."""


class Request(TakenRequest, Protocol):
    """`Req`: one request, from the tokenizer to its last token."""

    origin_input_ids: Sequence[int]
    output_ids: Sequence[int]
    multimodal_inputs: object
    """Its images, sounds and videos; None without any."""
    sampling_params: SamplingParams
    extend_end: int | None
    """Tokens that are cached or were launched, of a prompt whose prefill goes by chunks."""
    to_finish: object
    """The reason for which it will end with its next token; None as long as there is none."""
    finished_reason: object
    kv: RequestKv
    discard_output_reason: object
    """The reason for which it will end without the token of its prefill; None as long as there is none."""
    inflight_middle_chunks: int
    """Chunks of its prompt that were launched and do not end it."""
    grammar: Any
    """Its own, if what it may say is restricted; while that is compiled, a future of it."""
    beam_group: object
    time_stats: RequestTimes

    def __init__(
        self, rid: str, text: str, input_ids: object, params: SamplingParams, /, *, vocab_size: int
    ) -> None: ...

    prefix_len: int
    """Tokens found in the prefix cache when it was last looked up there, or launched in chunks before."""

    def finished(self) -> bool: ...

    def init_next_round_input(self, tree_cache: PrefixCache, /) -> None: ...

    def refresh_fill_ids(self) -> None: ...

    def update_finish_state(self, new_accepted_len: int, /) -> None: ...


class StreamedParams(SamplingParams, Protocol):
    """What says how an answer is streamed. Not needed to serve: without it answers are streamed as ever."""

    stop_strs: object
    skip_special_tokens: bool
    stream_interval: int | None


class StreamedRequest(Request, Protocol):
    """The same of a request."""

    sampling_params: StreamedParams
    stream: bool
    send_token_offset: int
    """Tokens that the output streamer has sent."""
    origin_input_ids_unpadded: Sequence[int]
    return_logprob: bool
    logprob: Any
    """Log probabilities of its tokens so far, if they were asked for."""

    def check_match_stop_str_prefix(self) -> bool: ...


class ForwardMode(Protocol):
    """What a batch computes."""

    def is_extend(self) -> bool: ...


class ForwardModes(Protocol):
    """`ForwardMode`, the enumeration."""

    EXTEND: ForwardMode
    DECODE: ForwardMode
    MIXED: ForwardMode
    SPLIT_PREFILL: ForwardMode


class ForwardBatch(Protocol):
    """What one forward of the model is about."""

    forward_mode: ForwardMode
    batch_size: int
    input_ids: Tensor
    positions: Tensor
    extend_seq_lens_cpu: list[int]
    split_index: int


class AbortRequest(Protocol):
    """`AbortReq`: end a request."""

    def __init__(self, *, rid: str, finished_reason: dict[str, object], abort_message: str) -> None: ...


class CheckpointKv(Protocol):
    """`checkpoint_kv_cache`: insert what an unfinished request has computed so far."""

    def __call__(self, req: Request, tree_cache: PrefixCache, /) -> None: ...


class ReleaseKv(Protocol):
    """`release_kv_cache`."""

    def __call__(self, req: Request, tree_cache: PrefixCache, /, *, checkpoint: bool) -> None: ...


class Batch(Protocol):
    """`ScheduleBatch`: requests that are computed together, and their tensors."""

    reqs: list[Request]
    forward_mode: ForwardMode
    device: object
    batch_is_full: bool
    chunked_req: Request | None
    decoding_reqs: list[Request] | None
    return_logprob: bool
    return_hidden_states: object
    split_index: int
    split_forward_count: int
    split_forward_batch: ForwardBatch | None
    split_prefill_finished: bool
    input_ids: Tensor | None
    prefix_lens: list[int]
    extend_lens: list[int]
    extend_num_tokens: int
    extend_logprob_start_lens: list[int]
    req_pool_indices: Tensor
    req_pool_indices_cpu: Tensor
    seq_lens: Tensor
    seq_lens_cpu: Tensor
    seq_lens_sum: int
    orig_seq_lens: Tensor
    out_cache_loc: Tensor
    multimodal_inputs: list[None] | None
    sampling_info: SamplingInfo
    has_grammar: bool

    @classmethod
    def init_new(
        cls,
        reqs: Sequence[Request],
        req_to_token_pool: RequestPool,
        token_to_kv_pool_allocator: KvAllocator,
        tree_cache: PrefixCache,
        model_config: ModelConfig,
        enable_overlap: bool,
        spec_algorithm: object,
        /,
    ) -> Batch: ...

    def batch_size(self) -> int: ...

    def is_empty(self) -> bool: ...

    def copy(self) -> Batch: ...

    def filter_batch(
        self, *, reqs_to_exclude: list[Request] | None = None, keep_indices: list[int] | None = None
    ) -> None: ...

    def check_decode_mem(self) -> bool: ...

    def merge_batch(self, other: Batch, /) -> None: ...


class PrefillBatch(Batch, Protocol):
    """A batch that is prefilled layer by layer, with what this package keeps on it."""

    formed: Event
    """Behind what forming it launched."""
    greatest_logits: Tensor | None
    """By row, set with its last layer; None where nothing restricts the tokens."""


class NextBatchPlan(Protocol):
    """What SGLang would run next, and what decodes from now on."""

    batch_to_run: Batch | None
    running_batch: Batch


class BatchResult(Protocol):
    """`GenerationBatchResult`: what a batch computes, on the device until it is read."""

    copy_done: Event
    logits_output: Any
    delay_sample_func: object
    """Set if sampling must wait until the tokens of the step before were read."""

    def copy_to_cpu(self, *, return_logprob: bool, return_hidden_states: object) -> None: ...


class Penalizers(Protocol):
    """`BatchedPenalizerOrchestrator`."""

    is_required: bool


class SamplingInfo(Protocol):
    """`SamplingBatchInfo`."""

    penalizer_orchestrator: Penalizers
    acc_additive_penalties: Tensor | None
    grammars: Sequence[Any] | None
    vocab_size: int
    grammar_mask: Any
    """A row of bits for each request, once it is made: those of tokens that are allowed."""
    has_custom_logit_processor: bool

    def update_regex_vocab_mask(self) -> None: ...

    @classmethod
    def from_schedule_batch(cls, batch: Any, vocab_size: int, /) -> SamplingInfo: ...
