"""Marlin's locks for prefill alone, so that prefill and decode can be in one layer at the same time.

The blocks of one of Marlin's products wait for each other at counters in the layer's `workspace`, and leave
them at zero. Launches of one stream follow each other, so that one workspace is enough for all of prefill:
when prefill goes to another stream, that one waits for the earlier one (`group.py`). Read in SGLang 0.5.23;
the kernel is the same for GPTQ, AWQ, compressed-tensors, FP8 and FP4. GPTQ ran so on an H200, the others on
no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature

from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.symbols import marlin, sglang
from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.model import MarlinProduct
from pdmuxd.engine.sglang.internals.shared_state import Modules, holders
from pdmuxd.engine.sglang.launch.mode import MARLIN_EXPERTS
from pdmuxd.engine.sglang.marlin_blocks import most_waiting, why_no_room

_PLAIN_EXPERTS = "UnquantizedFusedMoEMethod"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarlinLayer:
    """A linear layer whose products are Marlin's."""

    name: str
    locks: Tensor
    inputs: int
    outputs: int

    def most_waiting(self, sms: int) -> int:
        """Blocks of one product that may wait for each other in a row, at most."""
        return most_waiting(self.inputs, self.outputs, sms)


def marlin_layers(model: Modules) -> list[MarlinLayer]:
    """The linear layers of a model whose locks are as SGLang makes them for its one linear kernel. Experts,
    whose locks are four times as many, are none of them, nor are other layers and other workspaces."""
    linear = sglang().Linear
    return [
        MarlinLayer(
            name=type(layer).__name__,
            locks=locks,
            inputs=getattr(layer, "input_size_per_partition", layer.input_size),
            outputs=sum(getattr(layer, "output_partition_sizes", (layer.output_size,))),
        )
        for layer in model.modules()
        if isinstance(layer, linear)
        for locks in _locks(layer)
    ]


def _locks(layer: object) -> Iterator[Tensor]:
    for holder in holders(layer):
        found: Tensor = getattr(holder, "workspace", None)
        if hasattr(found, "data_ptr") and not found.is_floating_point() and found.dim() == 1:
            made = marlin().marlin_make_workspace(found.device)
            if (found.dtype, found.shape) == (made.dtype, made.shape):
                yield found


def why_shared(model: Modules, layers: Sequence[MarlinLayer], groups: Sequence[StreamGroup]) -> str:
    """Why these layers' products cannot run on the streams of these groups with locks of prefill's own;
    empty if they can."""
    for module in model.modules():
        is_experts = any(kind.__name__ == "FusedMoE" for kind in type(module).__mro__)
        if is_experts and type(getattr(module, "quant_method", None)).__name__ != _PLAIN_EXPERTS:
            return MARLIN_EXPERTS
    whole = max(group.prefill_sms for group in groups)
    splits = [(one.prefill_sms, one.decode_sms) for one in groups if one.prefill_sms and one.decode_sms]
    for layer in layers:
        if why := why_no_room(layer.most_waiting(whole), splits, whole):
            return f"{layer.name} with {layer.outputs} outputs: {why}"
    return ""


def keep_apart(layers: Sequence[MarlinLayer], is_prefill: Callable[[], bool]) -> Tensor:
    """Launch Marlin with the locks that are returned while `is_prefill`, else with the layer's.

    Raises: EngineError if SGLang's kernel is not as expected.
    """
    api = marlin()
    own = api.marlin_make_workspace(layers[0].locks.device)
    for module in (api.marlin_utils, api.marlin_utils_fp8, api.marlin_utils_fp4):
        module.gptq_marlin_gemm = _by_role(module.gptq_marlin_gemm, own, is_prefill)
    return own


def _by_role(product: MarlinProduct, own: Tensor, is_prefill: Callable[[], bool]) -> MarlinProduct:
    at = [*signature(product).parameters].index("workspace")

    @wraps(product)
    def launch(*given: object, **named: object) -> Tensor:
        if is_prefill():
            if len(given) > at:
                given = (*given[:at], own, *given[at + 1 :])
            else:
                named["workspace"] = own
        return product(*given, **named)

    return launch
