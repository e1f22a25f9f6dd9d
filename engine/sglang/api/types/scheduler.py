"""The scheduler of one rank, and what it calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pdmuxd.engine.sglang.api.types.device import DeviceModule, Stream
from pdmuxd.engine.sglang.api.types.memory import KvAllocator, PrefixCache, RequestPool
from pdmuxd.engine.sglang.api.types.model import ModelConfig, ModelRunner
from pdmuxd.engine.sglang.api.types.process import FreezeRequest, ProcessGroup
from pdmuxd.engine.sglang.api.types.requests import AbortRequest, Batch, BatchResult, NextBatchPlan, Request


class Worker(Protocol):
    """`TpModelWorker`: the model runner of this rank."""

    enable_overlap: bool

    @property
    def model_runner(self) -> ModelRunner:
        raise NotImplementedError

    def forward_batch_generation(self, batch: Batch, /) -> Any: ...

    def forward_batch_split_prefill(self, batch: Batch, /) -> Any: ...


class OutputStreamer(Protocol):
    """Sends tokens to the process that makes text of them."""

    def stream_output(
        self, reqs: Sequence[Request], return_logprob: bool, skip_req: Request | None = None, /
    ) -> None: ...


class ResultProcessor(Protocol):
    """`BatchResultProcessor`: gives requests their tokens. It is frozen."""

    enable_overlap: bool
    output_streamer: OutputStreamer


class Grammar(Protocol):
    """`BaseGrammarObject`: how far an answer is in its grammar."""

    finished: bool

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: str, /) -> Any: ...

    def fill_vocab_mask(self, vocab_mask: Any, idx: int, /) -> None: ...

    def is_terminated(self) -> bool: ...


class InvalidGrammar(Grammar, Protocol):
    """`InvalidGrammarObject`: one that does not compile."""

    def __init__(self, error_message: str, /) -> None: ...


class GrammarBackend(Protocol):
    """`XGrammarGrammarBackend`: compiles grammars, in threads of its own."""

    vocab_size: int

    def _init_value_dispatch(self, key: tuple[str, str], require_reasoning: bool, /) -> Grammar | None: ...


class Grammars(Protocol):
    """`GrammarManager`: requests whose grammar is being compiled."""

    def has_waiting_grammars(self) -> bool: ...

    def get_ready_grammar_requests(self) -> Sequence[Request]: ...


class ServerArguments(Protocol):
    """`ServerArgs`, once they are resolved."""

    served_model_name: str | None
    model_path: str
    kv_cache_dtype: str


class QueueOrder(Protocol):
    """`SchedulePolicy`."""

    def shortest_prefill_chunk_limit(
        self, chunked_req: Request, waiting_queue: list[Request], budget: int, page_size: int, /
    ) -> int | None: ...


class OutputSender(Protocol):
    """`SenderWrapper`: where answers and ends of requests go."""

    def send_output(self, output: AbortRequest, recv_obj: Any, /) -> None: ...


class IpcChannels(Protocol):
    """`SchedulerIpcChannels`."""

    send_to_tokenizer: OutputSender


class Scheduler(Protocol):
    """The scheduler of one rank."""

    # What there is.
    ipc_channels: IpcChannels
    server_args: ServerArguments
    enable_lora: bool | None
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
    policy: QueueOrder
    page_size: int
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

    def _reqs_finishing_inflight(self, batch: Batch, /) -> list[Request]: ...

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

    def handle_generate_request(self, recv_req: Any, /) -> None: ...

    def handle_freeze_gc(self, recv_req: FreezeRequest, /) -> object: ...


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
