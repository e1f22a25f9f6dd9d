"""The model on its device: layers, attention, graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pdmuxd.engine.sglang.api.types.device import Tensor


class ModelConfig(Protocol):
    """The model's shape."""

    num_hidden_layers: int
    vocab_size: int
    context_len: int
    dtype: Any
    """torch.dtype of the weights."""
    hf_config: Any
    """The model's own configuration; which fields it has depends on the model."""
    hf_text_config: Any
    """The part of it that is of the text decoder, as SGLang finds it."""
    quantization: str | None
    is_multimodal: bool
    is_multimodal_chunked_prefill_supported: bool
    is_encoder_decoder: bool


class AttentionBackend(Protocol):
    """An attention backend of any kind."""

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


class LogitsOutput(Protocol):
    """`LogitsProcessorOutput`: what a forward of the model computed."""

    next_token_logits: Tensor
    """(rows, vocabulary)."""


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

    def forward_split_prefill(
        self, forward_batch: object, reinit_attn_backend: bool, forward_count: int
    ) -> object: ...

    def _extend_forward_kwargs(self, forward_batch: object, pp_proxy_tensors: None, /) -> dict[str, Any]: ...

    def init_cuda_graphs(self) -> None: ...

    def _preprocess_logits(self, logits_output: LogitsOutput, sampling_info: object, /) -> object: ...


class LinearLayer(Protocol):
    """`LinearBase`: a layer that multiplies by its weights."""

    input_size: int
    output_size: int
    params_dtype: object
    quant_method: Any


class LoadedLinear(LinearLayer, Protocol):
    """A linear layer with its weights, which its `quant_method` put there."""

    weight: Tensor
    """(outputs, inputs)."""


class UnquantizedLinear(Protocol):
    """`UnquantizedLinearMethod`: how layers with plain weights multiply."""

    def apply(self, layer: LinearLayer, x: Tensor, /) -> Tensor: ...


class MarlinProduct(Protocol):
    """`gptq_marlin_gemm`, with whatever else SGLang calls it with."""

    def __call__(self, *args: Any, workspace: Tensor, **named: Any) -> Tensor: ...


class MarlinModule(Protocol):
    """A module whose layers' products are Marlin's."""

    gptq_marlin_gemm: MarlinProduct


class MakeMarlinWorkspace(Protocol):
    """`marlin_make_workspace`: locks for the products of one linear layer."""

    def __call__(self, device: object, /) -> Tensor: ...


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


Scaled = tuple[Tensor, Tensor]
"""Values in FP8, and the scales of their blocks."""


class DeepGemm(Protocol):
    """The module `deep_gemm`, which multiplies FP8 in blocks; its number of SMs is the process's."""

    __version__: str
    fp8_gemm_nt: Callable[..., None]
    """Writes x times the weights, which are (outputs, inputs), to its third argument."""
    set_num_sms: Callable[[int], None]
    """Launch for so many from now on; an even number, at most the device's."""

    def get_num_sms(self) -> int:
        """How many SMs the next product is launched for."""
