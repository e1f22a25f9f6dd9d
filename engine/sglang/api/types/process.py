"""Processes: ranks and their groups, the HTTP server's own, hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.model import Graphs


class ProcessGroup(Protocol):
    """`GroupCoordinator`: ranks that sum with each other."""

    ranks: Sequence[int]
    world_size: int


class Parallel(Protocol):
    """What `get_parallel` gives: this process's rank, and its process groups by name."""

    tp_rank: int
    tp_size: int
    tp_group: ProcessGroup

    def override(self, **groups: ProcessGroup) -> AbstractContextManager[object]: ...


class ParallelOverride(Protocol):
    """`ParallelContext`, as far as its class shows what it has."""

    def override(self, **groups: ProcessGroup) -> AbstractContextManager[object]: ...


class GraphSettings(Protocol):
    """The settings' part about graphs."""

    cuda_graph_config: Graphs


class Exec(Protocol):
    """What `get_exec` gives."""

    graph: GraphSettings


class ForwardFlags(Protocol):
    """What `get_forward` gives: flags of the forward under way."""

    _plain: dict[str, Any]
    """Those that are no context variables."""


class BoundaryLayout(Protocol):
    """`sglang.srt.layers.layer_boundary.layout`: which rank has which rows between two parts of a layer."""

    _cp_gathers_over_attn_cp: Callable[[], bool]
    """Whether context-parallel ranks gather them, by the settings alone."""


class SmallCopy(Protocol):
    """`try_small_copy`."""

    def __call__(self, dsts: Sequence[Tensor], srcs: Sequence[Tensor], /) -> bool: ...


class ServerStatuses(Protocol):
    """`ServerStatus`, the enumeration."""

    UnHealthy: object


class HttpRequest(Protocol):
    """Starlette's, as far as it is used."""

    headers: Mapping[str, str]


class GenerateRequest(Protocol):
    """`GenerateReqInput`: what SGLang makes of a request of whatever API, before it is tokenized."""

    rid: str | list[str] | None
    extra_key: str | list[str] | None
    lora_path: str | list[str | None] | None
    """An adapter's name."""
    sampling_params: Any
    """A mapping; of a batch, perhaps a list of them."""


class CollectorSettings(Protocol):
    """`ServerArgs`, as far as the garbage collector goes."""

    gc_threshold: list[int] | None


class FreezeRequest(Protocol):
    """`FreezeGCReq`: SGLang has warmed up, and what there is now stays."""

    gc_threshold: list[int] | None


class DetokenizerManager(Protocol):
    """What the detokenizer's process keeps of requests."""

    decode_status: dict[str, Any]

    def handle_freeze_gc_req(self, recv_req: FreezeRequest, /) -> None: ...


class TokenizerManager(Protocol):
    """What the process with the HTTP server keeps of requests."""

    gracefully_exit: bool
    rid_to_state: dict[str, Any]
    lora_ref_cache: Mapping[str, object]
    """By name, the adapters that were ever loaded."""
    server_status: object
    server_args: CollectorSettings

    async def freeze_gc(self) -> None: ...
    async def sigterm_watchdog(self) -> None: ...
    def generate_request(self, obj: Any, request: Any = None, /) -> object: ...


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


class MakeEmpty(Protocol):
    """`make_empty` of triton_kernels' `topk`: room for what its kernels write."""

    def __call__(
        self,
        offset: int,
        shape: Sequence[int],
        dtype: object,
        device: object,
        /,
        *,
        all_gather: bool,
        symm_mem_pool: object,
    ) -> object: ...


class FlashInferUtils(Protocol):
    """`flashinfer.utils`: buffers that its kernels share."""

    _cache_buf: dict[Any, Any]

    def _get_cache_buf(self, name: str, num_bytes: int, device: object, zero_init: bool) -> Tensor: ...
