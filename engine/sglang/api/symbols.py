"""The names of SGLang that this package imports or hooks, each once, with its type.

SGLang is looked up here alone, and only when `sglang` is first called: every other module can be imported
without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Annotated, Any, TypeVar, get_type_hints

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.check import differences
from pdmuxd.engine.sglang.api.types import model, process, requests, scheduler
from pdmuxd.engine.sglang.api.versions import RANGE, check_supported

_ATTENTION = "sglang.srt.layers.attention.flashattention_backend"
_BATCH = "sglang.srt.managers.schedule_batch"
_GRAMMAR = "sglang.srt.constrained"
_GRAPH_CONFIG = "sglang.srt.model_executor.cuda_graph_config"
_HOOKS = "sglang.srt.plugins.hook_registry"
_QUANTIZATION = "sglang.srt.layers.quantization"
_RUNNERS = "sglang.srt.model_executor.runner"
_RUNTIME = "sglang.srt.runtime_context"
_SAMPLING = "sglang.srt.sampling"
_TOKENIZER = "sglang.srt.managers.tokenizer_manager"

ApiT = TypeVar("ApiT")
_LONGEST = 120
"""Letters of an import's error."""
_NAMED = 3
"""Differences that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangApi:
    """Everything that is used of SGLang."""

    # The scheduler, and what it makes.
    Scheduler: Annotated[type[scheduler.OverlapBookkeeping], "sglang.srt.managers.scheduler:Scheduler"]
    MultiplexMixin: Annotated[
        type[scheduler.MultiplexMixin], "sglang.srt.multiplex.multiplexing_mixin:SchedulerMultiplexMixin"
    ]
    Request: Annotated[type[requests.Request], f"{_BATCH}:Req"]
    Batch: Annotated[type[requests.Batch], f"{_BATCH}:ScheduleBatch"]
    AbortRequest: Annotated[type[requests.AbortRequest], "sglang.srt.managers.io_struct:AbortReq"]
    Aborted: Annotated[Callable[..., object], f"{_BATCH}:FINISH_ABORT"]
    BatchResult: Annotated[type[requests.BatchResult], "sglang.srt.managers.utils:GenerationBatchResult"]
    SamplingParams: Annotated[type[requests.SamplingParams], f"{_SAMPLING}.sampling_params:SamplingParams"]
    SamplingInfo: Annotated[type[requests.SamplingInfo], f"{_SAMPLING}.sampling_batch_info:SamplingBatchInfo"]
    OutputStreamer: Annotated[
        type[scheduler.OutputStreamer],
        "sglang.srt.managers.scheduler_components.output_streamer:SchedulerOutputStreamer",
    ]
    GrammarBackend: Annotated[
        type[scheduler.GrammarBackend], f"{_GRAMMAR}.xgrammar_backend:XGrammarGrammarBackend"
    ]
    InvalidGrammar: Annotated[
        type[scheduler.InvalidGrammar], f"{_GRAMMAR}.base_grammar_backend:InvalidGrammarObject"
    ]
    ForwardMode: Annotated[requests.ForwardModes, "sglang.srt.model_executor.forward_batch_info:ForwardMode"]
    EvictParams: Annotated[Callable[..., object], "sglang.srt.mem_cache.base_prefix_cache:EvictParams"]
    checkpoint_kv_cache: Annotated[requests.CheckpointKv, "sglang.srt.mem_cache.common:checkpoint_kv_cache"]
    release_kv_cache: Annotated[requests.ReleaseKv, "sglang.srt.mem_cache.common:release_kv_cache"]

    # The model and its graphs.
    ModelRunner: Annotated[type[model.ModelRunner], "sglang.srt.model_executor.model_runner:ModelRunner"]
    Linear: Annotated[type[model.LinearLayer], "sglang.srt.layers.linear:LinearBase"]
    UnquantizedLinear: Annotated[
        type[model.UnquantizedLinear], "sglang.srt.layers.quantization.unquant:UnquantizedLinearMethod"
    ]
    LogitsProcessor: Annotated[
        type[model.LogitsProcessor], "sglang.srt.layers.logits_processor:LogitsProcessor"
    ]
    PrefillGraphs: Annotated[
        type[model.PrefillGraphs], f"{_RUNNERS}.prefill_cuda_graph_runner:PrefillCudaGraphRunner"
    ]
    DecodeGraphs: Annotated[
        type[model.DecodeGraphs], f"{_RUNNERS}.decode_cuda_graph_runner:DecodeCudaGraphRunner"
    ]
    GraphBackend: Annotated[model.GraphBackends, f"{_GRAPH_CONFIG}:Backend"]
    PhaseGraphs: Annotated[type[model.PhaseGraphs], f"{_GRAPH_CONFIG}:PhaseConfig"]
    batch_sizes_to_capture: Annotated[
        model.CaptureSizes, f"{_RUNNERS}.base_cuda_graph_runner:get_batch_sizes_to_capture"
    ]
    try_small_copy: Annotated[process.SmallCopy, "sglang.kernels.ops.memory.small_copy:try_small_copy"]

    # The process.
    get_parallel: Annotated[Callable[[], process.Parallel], f"{_RUNTIME}:get_parallel"]
    ParallelContext: Annotated[type[process.ParallelOverride], f"{_RUNTIME}:ParallelContext"]
    get_exec: Annotated[Callable[[], process.Exec], f"{_RUNTIME}:get_exec"]
    get_forward: Annotated[Callable[[], process.ForwardFlags], f"{_RUNTIME}:get_forward"]
    boundary_layout: Annotated[process.BoundaryLayout, "sglang.srt.layers.layer_boundary.layout"]
    pdmux_prefill_tp_group: Annotated[
        Callable[[], AbstractContextManager[object]],
        "sglang.srt.distributed.parallel_state:pdmux_prefill_tp_group",
    ]
    streams: Annotated[scheduler.StreamGroups, "sglang.srt.multiplex.pdmux_context"]
    TokenizerManager: Annotated[type[process.TokenizerManager], f"{_TOKENIZER}:TokenizerManager"]
    DetokenizerManager: Annotated[
        type[process.DetokenizerManager], "sglang.srt.managers.detokenizer_manager:DetokenizerManager"
    ]
    GenerateRequest: Annotated[
        type[process.GenerateRequest], "sglang.srt.managers.io_struct:GenerateReqInput"
    ]
    ServerStatus: Annotated[process.ServerStatuses, f"{_TOKENIZER}:ServerStatus"]
    Hooks: Annotated[process.Hooks, f"{_HOOKS}:HookRegistry"]
    HookType: Annotated[process.HookTypes, f"{_HOOKS}:HookType"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherApi:
    """What starting a server takes, in the process that becomes it."""

    load_plugins: Annotated[Callable[[], object], "sglang.srt.plugins:load_plugins"]
    prepare_server_args: Annotated[Callable[[list[str]], Any], "sglang.srt.server_args:prepare_server_args"]
    run_server: Annotated[Callable[[Any], object], "sglang.launch_server:run_server"]
    kill_process_tree: Annotated[process.KillTree, "sglang.srt.utils:kill_process_tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionApi:
    """What attention on a partition takes, where there is a GPU: without one it cannot be imported."""

    FlashAttention: Annotated[type[model.FlashAttention], f"{_ATTENTION}:FlashAttentionBackend"]
    flash_attn_with_kvcache: Annotated[model.AttentionKernel, f"{_ATTENTION}:flash_attn_with_kvcache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsApi:
    """What choosing experts takes, where `triton_kernels` is installed: gpt-oss's layers bring it."""

    make_empty: Annotated[process.MakeEmpty, "triton_kernels.topk:make_empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashInferApi:
    """What FlashInfer's buffers take, where it is installed: SGLang samples with it on a GPU."""

    utils: Annotated[process.FlashInferUtils, "flashinfer.utils"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepGemmApi:
    """What products of FP8 in blocks take, where DeepGEMM is installed: SGLang has it on a GPU."""

    deep_gemm: Annotated[model.DeepGemm, "deep_gemm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarlinApi:
    """What Marlin's layers multiply with, where there is a GPU: without one it cannot be imported."""

    marlin_utils: Annotated[model.MarlinModule, f"{_QUANTIZATION}.marlin_utils"]
    marlin_utils_fp8: Annotated[model.MarlinModule, f"{_QUANTIZATION}.marlin_utils_fp8"]
    marlin_utils_fp4: Annotated[model.MarlinModule, f"{_QUANTIZATION}.marlin_utils_fp4"]
    marlin_make_workspace: Annotated[
        model.MakeMarlinWorkspace, f"{_QUANTIZATION}.marlin_utils:marlin_make_workspace"
    ]


@cache
def sglang() -> SglangApi:
    """SGLang, as this package knows it. Raises: EngineError if a name is missing or is not as expected."""
    return _resolved(SglangApi)


@cache
def launcher() -> LauncherApi:
    """The same, of what starts a server. Raises: EngineError."""
    return _resolved(LauncherApi)


@cache
def attention() -> AttentionApi:
    """The same, of attention on a GPU. Raises: EngineError."""
    return _resolved(AttentionApi)


@cache
def experts() -> ExpertsApi:
    """The same, of choosing experts. Raises: EngineError."""
    return _resolved(ExpertsApi)


@cache
def flashinfer() -> FlashInferApi:
    """The same, of FlashInfer. Raises: EngineError."""
    return _resolved(FlashInferApi)


@cache
def deep_gemm() -> model.DeepGemm:
    """The same, of DeepGEMM. Raises: EngineError."""
    return _resolved(DeepGemmApi).deep_gemm


@cache
def marlin() -> MarlinApi:
    """The same, of Marlin's layers on a GPU. Raises: EngineError."""
    return _resolved(MarlinApi)


def target(name: str, member: str = "") -> str:
    """How a hook names what it is put on: a name that stands above, and a member of it."""
    path = (_paths(SglangApi) | _paths(AttentionApi))[name].replace(":", ".")
    return f"{path}.{member}" if member else path


def broken() -> list[str]:
    """Every name of SGLang that is missing, or is not as this package expects it."""
    kinds: list[type] = [SglangApi, LauncherApi]
    kinds += [ExpertsApi] if find_spec("triton_kernels") is not None else []
    kinds += [FlashInferApi] if find_spec("flashinfer") is not None else []
    kinds += [DeepGemmApi] if find_spec("deep_gemm") is not None else []
    return [problem for kind in kinds for problem in _look_up(kind)[1]]


def check_scheduler(found: scheduler.Scheduler) -> None:
    """Compare a scheduler that is ready to serve, and all that it holds, with what the loop needs of it.

    Raises: EngineError naming what differs.
    """
    _refuse(list(differences("Scheduler", found, scheduler.Scheduler)))
    api = sglang()
    params = api.SamplingParams(temperature=0.0, max_new_tokens=1, ignore_eos=True)
    request = api.Request(
        "pdmuxd-check", "", array("q", [1]), params, vocab_size=found.model_config.vocab_size
    )
    _refuse(
        [
            *differences("Req", request, requests.Request),
            *differences("get_parallel()", api.get_parallel(), process.Parallel),
            *differences("get_exec()", api.get_exec(), process.Exec),
        ]
    )


def streaming_differences() -> list[str]:
    """What is not as it must be for tokens to go to the daemon past SGLang's own streaming; serving can do
    without."""
    api = sglang()
    params = api.SamplingParams(temperature=0.0, max_new_tokens=1, ignore_eos=True)
    request = api.Request("pdmuxd-check", "", array("q", [1]), params, vocab_size=2)
    return list(differences("Req", request, requests.StreamedRequest))


def plain_answers(found: scheduler.Scheduler, tokenizer: object) -> dict[str, bool]:
    """Which endpoints of SGLang send the model's text as it is: fields of `token_frames.Vocabulary`."""
    arguments = found.server_args
    reasoning, tools = (getattr(arguments, name, None) for name in ("reasoning_parser", "tool_call_parser"))
    hf_config = found.model_config.hf_config
    try:
        resolve = resolve_name("sglang.srt.entrypoints.openai.chat_encoding:resolve_chat_encoding_spec")
        is_encoded = resolve(hf_config=hf_config, tokenizer=tokenizer, tool_call_parser=tools) is not None
        if tools is not None:
            detectors = resolve_name("sglang.srt.function_call.function_call_parser:FunctionCallParser")
            is_encoded = is_encoded or detectors.ToolCallParserEnum[tools].parses_without_tools()
    except (ImportError, AttributeError, TypeError, KeyError):
        is_encoded = True
    plain_chat = not reasoning and not is_encoded
    has_times = getattr(arguments, "enable_metrics", True)
    has_parts = getattr(arguments, "incremental_streaming_output", True)
    return {
        "plain_chat": plain_chat,
        "has_tool_parser": bool(tools),
        # Of gpt-oss it is made of tokens, not of text.
        "plain_responses": plain_chat and getattr(hf_config, "model_type", None) != "gpt_oss",
        "plain_generate": not has_times and not has_parts,
    }


def installed_version() -> str:
    """SGLang's version. Raises: SettingsError if it is not supported."""
    return check_supported(metadata.version("sglang"))


def _resolved(kind: type[ApiT]) -> ApiT:
    found, problems = _look_up(kind)
    _refuse(problems)
    return kind(**found)


def _look_up(kind: type[Any]) -> tuple[dict[str, Any], list[str]]:
    """What there is of each name, and what is wrong."""
    found: dict[str, Any] = {}
    problems: list[str] = []
    expected = get_type_hints(kind)
    for name, path in _paths(kind).items():
        try:
            found[name] = resolve_name(path)
        except (ImportError, AttributeError) as error:
            problems.append(f"{path} is missing ({' '.join(str(error).split())[:_LONGEST]})")
        else:
            problems += differences(path.rpartition(":")[2], found[name], expected[name])
    return found, problems


def _paths(kind: type) -> dict[str, str]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(kind)}


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise EngineError(
            f"SGLang {metadata.version('sglang')} is not as pdmuxd needs it (supported are {RANGE}): "
            f"{'; '.join(problems[:_NAMED])}{more}"
        )
