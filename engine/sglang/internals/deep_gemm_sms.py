"""DeepGEMM's products are told how many SMs the partition has on which they are launched.

DeepGEMM starts one block for each SM that it knows of, and each block computes tile after tile until none is
left. On 100 of 132 SMs the last 32 blocks begin when the others have ended, so a product takes as long as on
66. SGLang multiplies so where weights are FP8 in blocks of 128 x 128, on Hopper. Read in sgl-deep-gemm 0.2.3;
measured on an H200, 2026-11-29 (docs/decisions/0099-deepgemm-and-its-sms.md).

The number of SMs is part of a kernel, so that each partition has kernels of its own. They are compiled ahead
(`deep_gemm_kernels.py`) for the weights of the model's layers; what has none is launched for all SMs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.model import DeepGemm, LoadedLinear, Scaled
from pdmuxd.engine.sglang.internals.shared_state import Modules
from pdmuxd.engine.sglang.streams.gemm import Shape
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

BLOCK = (128, 128)
"""Of weights that share a scale."""
CLUSTERED_SMS = 96
"""On more SMs, long inputs are told of them. On fewer, DeepGEMM takes the L2 cache to be as wide as the SMs
together and sees no worth in clusters (`heuristics/sm90.hpp`, 8e6 / 1.3e3 bytes a cycle, 64 an SM); it then
takes tiles of 256 rows without one, which run at 4 of 10 GFLOP/ms on each SM."""
ONE_TILE_ROWS = 128
"""Inputs of so few rows are told on any partition: no tile of 256 rows is taken for them."""


def fp8_shapes(model: Modules) -> set[Shape]:
    """The shapes of weights that DeepGEMM may multiply by: outputs and inputs."""
    found: set[Shape] = set()
    for module in model.modules():
        block = getattr(getattr(module, "quant_method", None), "weight_block_size", None)
        if block is None or tuple(block) != BLOCK or not isinstance(module, sglang().Linear):
            continue
        weight = cast(LoadedLinear, module).weight
        if str(weight.dtype) == "torch.float8_e4m3fn":
            outputs, inputs = weight.shape
            found.add((outputs, inputs))
    return found


def even(sms: int) -> int:
    """The number that DeepGEMM takes for a partition of so many SMs."""
    return sms - sms % 2


def is_worth(sms: int, rows: int) -> bool:
    """Whether a product of so many rows is faster when it is launched for the SMs of its partition."""
    return even(sms) > CLUSTERED_SMS or rows <= ONE_TILE_ROWS


def tell(
    kernels: PartitionKernels, library: DeepGemm, shapes: Collection[Shape], sms: Collection[int]
) -> None:
    """Let products by these weights be launched for the SMs of the partition in force, where it has one of
    these numbers of SMs; on all SMs nothing changes."""
    library.fp8_gemm_nt = _Product(
        kernels=kernels,
        launch=library.fp8_gemm_nt,
        set_num_sms=library.set_num_sms,
        total_sms=library.get_num_sms(),
        shapes=frozenset(shapes),
        sms=frozenset(sms),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """Stands for `fp8_gemm_nt`."""

    kernels: PartitionKernels
    launch: Callable[..., None]
    set_num_sms: Callable[[int], None]
    total_sms: int
    shapes: frozenset[Shape]
    sms: frozenset[int]

    def __call__(self, x: Scaled, weights: Scaled, *rest: object, **named: object) -> None:
        """Multiply, on the partition's SMs where that is worth it."""
        sms = self.kernels.sms
        if sms is None or not self._is_told(even(sms), x[0].shape[0], tuple(weights[0].shape)):
            self.launch(x, weights, *rest, **named)
            return
        self.set_num_sms(even(sms))
        try:
            self.launch(x, weights, *rest, **named)
        finally:
            self.set_num_sms(self.total_sms)

    def _is_told(self, sms: int, rows: int, shape: tuple[int, ...]) -> bool:
        return sms in self.sms and is_worth(sms, rows) and shape in self.shapes
