"""SGLang's objects, as far as this package reads, writes and calls them.

Each class here is a part of one of SGLang's. It is a type for mypy, and it is what `check.py` compares SGLang
with: a member that stands here must exist there, a method must take the parameters as they are written here
(before `/` by position, the others by name), and an attribute must hold such a value.

Members that start with an underscore are private in SGLang as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

Tensor: TypeAlias = Any
"""torch.Tensor, which the environment of the checks does not have."""
Event: TypeAlias = Any
"""torch.cuda.Event; on a CPU an instant."""
Stream: TypeAlias = Any
"""torch.cuda.Stream; on a CPU a stand-in."""


# --- requests and batches


class RequestTimes(Protocol):
    """When a request got how far, for SGLang's own metrics."""

    def set_completion_time(self) -> None: ...


class SamplingParams(Protocol):
    """How one request's tokens are chosen."""

    custom_params: dict[str, Any] | None

    def __init__(self, *, temperature: float, max_new_tokens: int, ignore_eos: bool) -> None: ...

    def normalize(self, tokenizer: None, /) -> None: ...


class Request(Protocol):
    """`Req`: one request, from the tokenizer to its last token."""

    rid: str
    origin_input_ids: Sequence[int]
    output_ids: Sequence[int]
    sampling_params: SamplingParams
    extend_end: int | None
    """Tokens that are cached or were launched, of a prompt whose prefill goes by chunks."""
    to_finish: object
    """The reason for which it will end with its next token; None as long as there is none."""
    finished_reason: object
    time_stats: RequestTimes

    def __init__(
        self, rid: str, text: str, input_ids: object, params: SamplingParams, /, *, vocab_size: int
    ) -> None: ...

    @property
    def prefix_len(self) -> int:
        """Tokens found in the prefix cache when it was last looked up there."""
        raise NotImplementedError

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


class AbortRequest(Protocol):
    """`AbortReq`: end a request."""

    def __init__(self, *, rid: str, finished_reason: dict[str, object], abort_message: str) -> None: ...


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
    split_forward_batch: object
    split_prefill_finished: bool
    input_ids: Tensor
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
    sampling_info: object

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

    def filter_batch(self, *, reqs_to_exclude: list[Request] | None = None) -> None: ...

    def merge_batch(self, other: Batch, /) -> None: ...


class PrefillBatch(Batch, Protocol):
    """A batch that is prefilled layer by layer, with what this package keeps on it."""

    formed: Event
    """Behind what forming it launched."""


class NextBatchPlan(Protocol):
    """What SGLang would run next, and what decodes from now on."""

    batch_to_run: Batch | None
    running_batch: Batch


class BatchResult(Protocol):
    """`GenerationBatchResult`: what a batch computes, on the device until it is read."""

    copy_done: Event
    delay_sample_func: object
    """Set if sampling must wait until the tokens of the step before were read."""

    def copy_to_cpu(self, *, return_logprob: bool, return_hidden_states: object) -> None: ...


class SamplingInfo(Protocol):
    """`SamplingBatchInfo`."""

    @classmethod
    def from_schedule_batch(cls, batch: Batch, vocab_size: int, /) -> object: ...


# --- memory


class PrefixCache(Protocol):
    """The radix tree of cached prompts."""

    def evictable_size(self) -> int: ...

    def protected_size(self) -> int: ...

    def total_size(self) -> int: ...


class KvAllocator(Protocol):
    """The KV pool's free slots."""

    def available_size(self) -> int: ...


class RequestPool(Protocol):
    """Which KV slots each running request has."""

    req_to_token: Tensor
    """(rows, slots), int32."""


# --- the model


class ModelConfig(Protocol):
    """The model's shape."""

    num_hidden_layers: int
    vocab_size: int
    hf_config: Any
    """The model's own configuration; which fields it has depends on the model."""
    is_multimodal: bool
    is_encoder_decoder: bool


class AttentionBackend(Protocol):
    """Of whatever kind."""

    def init_forward_metadata(self, forward_batch: object, /) -> None: ...


class FlashAttention(AttentionBackend, Protocol):
    """`FlashAttentionBackend`."""

    fa_impl_ver: int
    use_mla: bool
    has_local_attention: bool
    num_splits: int
    _get_scheduler_metadata: Callable[..., object] | None


class AttentionKernel(Protocol):
    """`flash_attn_with_kvcache`, with whatever else SGLang calls it with."""

    def __call__(self, *args: Any, sm_margin: int, **named: Any) -> object: ...


class ModelRunner(Protocol):
    """The model on its device, with its attention backends and graphs."""

    model: Any
    """A torch.nn.Module."""
    model_config: ModelConfig
    gpu_id: int
    attn_backend: AttentionBackend
    decode_attn_backend_group: Sequence[AttentionBackend] | None
    """By partition group."""
    sliding_window_size: int | None
    decode_cuda_graph_runner: object
    prefill_cuda_graph_runner: object

    def update_decode_attn_backend(self, stream_idx: int, /) -> None: ...

    def init_cuda_graphs(self) -> None: ...


class Worker(Protocol):
    """`TpModelWorker`: the model runner of this rank."""

    enable_overlap: bool

    @property
    def model_runner(self) -> ModelRunner:
        """The model on its device."""
        raise NotImplementedError

    def forward_batch_generation(self, batch: Batch, /) -> object: ...

    def forward_batch_split_prefill(self, batch: Batch, /) -> object: ...


class LinearLayer(Protocol):
    """`LinearBase`: a layer that multiplies by its weights."""

    input_size: int
    params_dtype: object
    quant_method: Any


class LoadedLinear(LinearLayer, Protocol):
    """A linear layer with its weights, which its `quant_method` put there."""

    weight: Tensor
    """(outputs, inputs)."""


class UnquantizedLinear(Protocol):
    """`UnquantizedLinearMethod`: how layers with plain weights multiply."""

    def apply(self, layer: LinearLayer, x: Tensor, /) -> Tensor: ...


class LogitsProcessor(Protocol):
    """The head of the model."""

    def _compute_lm_head(self, hidden_states: Tensor, lm_head: object, /) -> Tensor: ...


class PrefillGraphs(Protocol):
    """`PrefillCudaGraphRunner`: captures fused batches."""

    model_runner: ModelRunner
    capture_num_tokens: Sequence[int]

    def capture(self) -> None: ...


class DecodeGraphs(Protocol):
    """`DecodeCudaGraphRunner`: captures decode steps, once per partition group."""

    capture_bs: Sequence[int]

    def _capture_one_stream(self, stream_idx: int | None, /) -> None: ...


class CaptureSizes(Protocol):
    """`get_batch_sizes_to_capture`."""

    def __call__(self, model_runner: ModelRunner, /) -> tuple[Sequence[int], object]: ...


class GraphBackends(Protocol):
    """`Backend`: how graphs are captured."""

    FULL: str
    BREAKABLE: str


class PhaseGraphs(Protocol):
    """`PhaseConfig`: how one phase is captured."""

    backend: str
    max_bs: int | None
    full_prefill_max_req: int | None


class Graphs(Protocol):
    """`CudaGraphConfig`: how both phases are captured."""

    prefill: PhaseGraphs
    decode: PhaseGraphs


# --- the scheduler


class OutputStreamer(Protocol):
    """Sends tokens to the process that makes text of them."""

    def stream_output(
        self, reqs: Sequence[Request], return_logprob: bool, skip_req: Request | None = None, /
    ) -> None: ...


class ResultProcessor(Protocol):
    """`BatchResultProcessor`: gives requests their tokens. It is frozen."""

    enable_overlap: bool
    output_streamer: OutputStreamer


class Grammars(Protocol):
    """`GrammarManager`: requests whose grammar is being compiled."""

    def has_waiting_grammars(self) -> bool: ...

    def get_ready_grammar_requests(self) -> Sequence[Request]: ...


class ServerArguments(Protocol):
    """`ServerArgs`, once they are resolved."""

    served_model_name: str | None
    model_path: str


class ProcessGroup(Protocol):
    """`GroupCoordinator`: ranks that sum with each other."""

    ranks: Sequence[int]
    world_size: int


class DeviceModule(Protocol):
    """`torch.cuda`, or the CPU's part of PyTorch."""

    Event: Callable[[], Event]


class Scheduler(Protocol):
    """The scheduler of one rank."""

    # What there is.
    server_args: ServerArguments
    model_config: ModelConfig
    tp_worker: Worker
    tp_size: int
    tp_group: ProcessGroup
    tp_cpu_group: object
    device: object
    device_module: DeviceModule
    max_prefill_tokens: int
    max_running_requests: int
    max_total_num_tokens: int
    req_to_token_pool: RequestPool
    token_to_kv_pool_allocator: KvAllocator
    tree_cache: PrefixCache
    spec_algorithm: object
    grammar_manager: Grammars
    output_streamer: OutputStreamer
    batch_result_processor: ResultProcessor

    # What it is doing.
    waiting_queue: list[Request]
    running_batch: Batch
    last_batch: Batch | None
    chunked_req: Request | None
    _pending_chunked_abort_req: Request | None
    """The chunked request, once it is to be aborted."""
    result_queue: deque[tuple[Batch, BatchResult]]
    gracefully_exit: bool
    _engine_paused: bool

    # What the loop sets, as SGLang's own loops do.
    chunked_prefill_size: int | None
    is_mixed_chunk: bool
    enable_overlap: bool
    enable_skip_finishing_decode: bool
    schedule_stream: Stream
    forward_stream: Stream
    forward_stream_ctx: AbstractContextManager[object]
    _sched_idled: bool

    def ingest_requests(self) -> object: ...

    def get_next_batch_to_run(self, *, running_batch: Batch, last_batch: Batch | None) -> NextBatchPlan: ...

    def get_new_batch_prefill(self, running_batch: Batch, /) -> NextBatchPlan: ...

    def update_running_batch(self, batch: Batch, /) -> Batch | None: ...

    def run_batch(self, batch: Batch, /) -> BatchResult: ...

    def launch_batch_sample_if_needed(self, batch_result: BatchResult, cur_batch: Batch, /) -> object: ...

    def process_batch_result(self, batch: Batch, result: BatchResult, /) -> None: ...

    def on_idle(self) -> None: ...

    def flush_cache(self, *, empty_cache: bool) -> bool: ...

    def _add_request_to_queue(self, req: Request, /) -> None: ...

    def _apply_war_barrier(self) -> None: ...

    # What is hooked besides.
    def is_fully_idle(self) -> bool: ...

    def pause_generation(self, recv_req: object, /) -> object: ...

    def _collect_inflight_batches(self) -> list[Batch | None]: ...

    def _release_aborted_request(self, req: Request, /) -> None: ...

    def abort_request(self, recv_req: AbortRequest, /) -> None: ...


class OverlapBookkeeping(Scheduler, Protocol):
    """What SGLang's overlap scheduling makes for itself at its start, where `--enable-pdmux` lets it."""

    batch_record_buf: list[object]
    batch_record_ct: int


class MultiplexMixin(Protocol):
    """`SchedulerMultiplexMixin`."""

    def event_loop_pdmux(self) -> None: ...


class StreamGroups(Protocol):
    """The module `pdmux_context`: the streams that graphs and attention backends are made for."""

    STREAM_GROUPS: list[Any]
    SM_COUNTS: list[Any]

    def initialize_stream_groups(self, gpu_id: int, config: object, /) -> None: ...

    def set_current_stream_idx(self, idx: int, /) -> None: ...


# --- the process


class Parallel(Protocol):
    """What `get_parallel` gives: this process's rank, and its process groups by name."""

    tp_rank: int
    tp_size: int
    tp_group: ProcessGroup

    def override(self, **groups: ProcessGroup) -> AbstractContextManager[object]: ...


class ParallelOverride(Protocol):
    """`ParallelContext`, as far as its class shows what it has."""

    def override(self, **groups: ProcessGroup) -> AbstractContextManager[object]: ...


class Exec(Protocol):
    """What `get_exec` gives."""

    graph: GraphSettings


class GraphSettings(Protocol):
    """Its part about graphs."""

    cuda_graph_config: Graphs


class ReleaseKv(Protocol):
    """`release_kv_cache`."""

    def __call__(self, req: Request, tree_cache: PrefixCache, /, *, checkpoint: bool) -> None: ...


class SmallCopy(Protocol):
    """`try_small_copy`."""

    def __call__(self, dsts: Sequence[Tensor], srcs: Sequence[Tensor], /) -> bool: ...


class ServerStatuses(Protocol):
    """`ServerStatus`, the enumeration."""

    UnHealthy: object


class TokenizerManager(Protocol):
    """What the process with the HTTP server keeps of requests."""

    gracefully_exit: bool
    rid_to_state: dict[str, Any]
    server_status: object

    async def sigterm_watchdog(self) -> None: ...


class HookTypes(Protocol):
    """`HookType`, the enumeration."""

    BEFORE: object
    AFTER: object
    AROUND: object
    REPLACE: object


class Hooks(Protocol):
    """`HookRegistry`."""

    _patched: set[str]

    def register(self, target: str, hook: Callable[..., object], hook_type: object, /) -> None: ...


class KillTree(Protocol):
    """`kill_process_tree`."""

    def __call__(self, parent_pid: int, /, *, include_parent: bool) -> None: ...
