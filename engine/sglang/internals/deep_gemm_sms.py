"""DeepGEMM's products are told how many SMs the partition has on which they are launched.

DeepGEMM starts one block for each SM that it knows of, and each block computes tile after tile until none is
left. On 100 of 132 SMs the last 32 blocks begin when the others have ended, so a product takes as long as on
66. SGLang multiplies so where weights are FP8 in blocks of 128 x 128, on Hopper. Read in sgl-deep-gemm 0.2.3
(`scheduler/gemm.cuh`); the number of SMs is part of a kernel, so each partition has kernels of its own, which
are compiled when they are first needed and kept by DeepGEMM on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

PRODUCTS = ("fp8_gemm_nt", "m_grouped_fp8_gemm_nt_contiguous", "fp8_m_grouped_gemm_nt_masked")
"""What SGLang calls for layers and for experts. Others, such as an indexer's logits, read plans that were
made for the number of SMs before, so they stay as they are."""


class DeepGemm(Protocol):
    """The module `deep_gemm`: `PRODUCTS` beside these, whose number is the process's."""

    def get_num_sms(self) -> int:
        """How many SMs the next product is launched for."""

    def set_num_sms(self, number: int, /) -> None:
        """Launch for so many from now on; an even number, at most the device's."""


def tell(kernels: PartitionKernels, library: DeepGemm) -> None:
    """Let products be launched for the SMs of the partition in force; on all SMs nothing changes."""
    for name in PRODUCTS:
        if hasattr(library, name):
            setattr(library, name, partial(_launch, kernels, library, getattr(library, name)))


def _launch(
    kernels: PartitionKernels,
    library: DeepGemm,
    original: Callable[..., Tensor],
    /,
    *given: object,
    **named: object,
) -> Tensor:
    if kernels.sms is None:
        return original(*given, **named)
    before = library.get_num_sms()  # fewer than all where SGLang leaves some to another stream
    library.set_num_sms(min(before, kernels.sms - kernels.sms % 2))
    try:
        return original(*given, **named)
    finally:
        library.set_num_sms(before)
