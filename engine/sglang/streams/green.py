"""Green contexts through cuda-python: one split of the device's SMs, and a stream on each part.

A green context is a context whose kernels run on a fixed set of SMs. `cuDevSmResourceSplitByCount`
gives the first part; the second takes what remains, so no SM idles. What the driver really gave is
read back, never assumed. Source: CUDA driver API, "Green Contexts" (12.4 and later).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams.driver import load_driver, value_of


_ALIGNMENT_SMS = 8
"""Sizes of a split on Hopper, which is the only architecture that is split so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenStream:
    """A stream of its own green context; the context must outlive it, so it is kept here."""

    sms: int
    handle: int
    """CUstream, as an integer."""
    context: Any


def split_device(gpu: int, prefill_sms: int, decode_sms: int) -> tuple[GreenStream, GreenStream]:
    """Two streams on disjoint SMs of device `gpu`.

    Raises: EngineError if the driver has no green contexts, refuses the split, or gave other sizes.
    """
    driver = load_driver()
    device = value_of(driver, "cuDeviceGet", driver.cuDeviceGet(gpu))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = value_of(driver, "cuDeviceGetDevResource", driver.cuDeviceGetDevResource(device, kind))
    # What is left of a split cannot be split again, so both sides come from one call: as groups of one size,
    # or as one group and what is left.
    uses_rest = prefill_sms + decode_sms == whole.sm.smCount
    first_sms = decode_sms if uses_rest and prefill_sms % _ALIGNMENT_SMS else prefill_sms
    size = first_sms if uses_rest else gcd(prefill_sms, decode_sms)
    count = 1 if uses_rest else (prefill_sms + decode_sms) // size
    groups, _, rest = value_of(
        driver,
        f"cuDevSmResourceSplitByCount({count} of {size})",
        driver.cuDevSmResourceSplitByCount(count, whole, 0, size),
    )
    first = groups[: first_sms // size]
    second = [rest] if uses_rest else groups[first_sms // size :]
    sides = (first, second) if first_sms == prefill_sms else (second, first)
    prefill, decode = (_stream(driver, device, kind, side) for side in sides)
    if (prefill.sms, decode.sms) != (prefill_sms, decode_sms):
        raise EngineError(
            f"partition {prefill_sms},{decode_sms}: the driver gave {prefill.sms},{decode.sms} SMs instead"
        )
    return prefill, decode


def _stream(driver: Any, device: Any, kind: Any, parts: Sequence[Any]) -> GreenStream:
    description = value_of(
        driver, "cuDevResourceGenerateDesc", driver.cuDevResourceGenerateDesc(list(parts), len(parts))
    )
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    context = value_of(driver, "cuGreenCtxCreate", driver.cuGreenCtxCreate(description, device, flags))
    got = value_of(driver, "cuGreenCtxGetDevResource", driver.cuGreenCtxGetDevResource(context, kind))
    stream = value_of(
        driver,
        "cuGreenCtxStreamCreate",
        driver.cuGreenCtxStreamCreate(context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0),
    )
    return GreenStream(sms=int(got.sm.smCount), handle=int(stream), context=context)
