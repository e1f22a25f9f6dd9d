"""What prefill and decode would both write if they ran at the same time: then the model is not split.

Both streams go through one set of layers. A kernel whose locks, pointers or sizes belong to the layer finds
the other stream's there when both are at that layer: Marlin waits for ever, CUTLASS takes the wrong experts
and says nothing. This is by reading SGLang 0.5.23; of Marlin's hang there is a report (its issue 37904).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol


class Modules(Protocol):
    """A torch.nn.Module, as far as it is looked at."""

    def modules(self) -> Iterable[Any]:
        """All parts of it, itself included."""


_BUFFERS: Mapping[str, str] = {
    "workspace": "locks of Marlin or a workspace of CUTLASS",
    "expert_offsets": "offsets of experts for CUTLASS",
    "problem_sizes1": "sizes of products of experts for CUTLASS",
}
"""Tensors of a layer that each of its launches writes."""
_HOLDERS = ("quant_method", "scheme", "kernel", "cutlass_moe_params")
"""Where a layer keeps what holds them."""
_ONE_BUFFER = (
    *("FlashInferMLAAttnBackend", "TRTLLMMLABackend", "TRTLLMHAAttnBackend"),
    *("DeepseekSparseAttnBackend", "DeepseekV4TrtllmAttnBackend"),
)
"""Attention whose backends all take their workspace from one buffer of the process."""
_SIDE_STREAMS: Mapping[str, str] = {
    "Llama4MoE": "its experts run on a stream of their own, which has all SMs",
}
"""Models whose layers leave the stream that they are launched on, also in prefill."""
_ADAPTED = "WithLoRA"
"""How the layers' names end that SGLang puts around those with adapters."""
_ONE_COMMUNICATOR = ("MiniMaxM2Attention", "KimiK3MLP")
"""Layers that sum over a communicator of their own, which prefill and decode would share."""
_FLAGS: Mapping[str, tuple[tuple[object, ...], str]] = {
    "moe_a2a_backend": ((None, "none"), "the exchange of tokens between experts has one buffer"),
    "enable_flashinfer_allreduce_fusion": ((None, False), "fused sums have one workspace"),
    "enable_torch_compile": ((None, False), "a compiled layer cannot pause"),
    "expert_distribution_recorder_mode": ((None,), "the recorder of experts follows one forward at a time"),
    "cpu_offload_gb": ((None, 0), "layers are brought from the host's memory for one forward at a time"),
}
"""Fields of SGLang's arguments: values with which a split is safe, and why it is not with others."""


def shared_by_streams(
    model: Modules,
    arguments: object,
    *,
    attention: Iterable[object],
    tp_size: int,
    decodes_own: Collection[int] = (),
) -> str:
    """The first thing found that both streams would write, in words; empty if there is none. Prefill has its
    own in the place of the tensors whose `id` is among `decodes_own`."""
    return next(_found(model, arguments, attention, tp_size, decodes_own), "")


def _found(
    model: Modules,
    arguments: object,
    attention: Iterable[object],
    tp_size: int,
    decodes_own: Collection[int],
) -> Iterator[str]:
    for field, (safe, why) in _FLAGS.items():
        value = getattr(arguments, field, None)
        if value not in safe:
            yield f"--{field.replace('_', '-')} {value}: {why}"
    for backend in attention:
        name = type(backend).__name__
        if name in _ONE_BUFFER:
            yield f"the attention {name} has one workspace for both streams"
    for module in model.modules():
        name = type(module).__name__
        if name in _SIDE_STREAMS:
            yield f"{name}: {_SIDE_STREAMS[name]}"
        if name.endswith(_ADAPTED):
            yield f"{name}: which adapters a batch needs is kept once for both streams"
        if tp_size > 1 and name in _ONE_COMMUNICATOR:
            yield f"{name} sums over one communicator for both streams"
        for holder in holders(module):
            for buffer, what in _BUFFERS.items():
                found = getattr(holder, buffer, None)
                if hasattr(found, "data_ptr") and id(found) not in decodes_own:
                    yield f"{name} keeps {what}, which both streams would write ({buffer})"


def holders(module: object) -> Iterator[object]:
    """A layer, and the parts of it that multiply: a method, its scheme, its kernel."""
    waiting, seen = [module], {id(module)}
    while waiting:
        holder = waiting.pop()
        yield holder
        for name in _HOLDERS:
            part = getattr(holder, name, None)
            if part is not None and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
