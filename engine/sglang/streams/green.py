"""Green contexts through cuda-python: one split of the device's SMs, and a stream on each part.

A green context is a context whose kernels run on a fixed set of SMs. `cuDevSmResourceSplitByCount`
gives whole groups of SMs; the other side takes what remains, so no SM idles. Decode has the whole groups
where both could. What the driver really gave is read back, never assumed. Source: CUDA driver API, "Green
Contexts" (12.4 and later).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams.driver import load_driver, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenStream:
    """A stream of its own green context; the context must outlive it, so it is kept here."""

    sms: int
    handle: int
    """CUstream, as an integer."""
    context: Any


def split_device(
    gpu: int, prefill_sms: int, decode_sms: int, *, multiple_sms: int = 8
) -> tuple[GreenStream, GreenStream]:
    """Two streams on disjoint SMs of device `gpu`, which together have all of its SMs.

    One size is a multiple of `multiple_sms`; the other side is what is left of the split.
    Raises: EngineError if the driver has no green contexts, refuses the split, or gave other sizes.
    """
    driver = load_driver()
    device = value_of(driver, "cuDeviceGet", driver.cuDeviceGet(gpu))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = value_of(driver, "cuDeviceGetDevResource", driver.cuDeviceGetDevResource(device, kind))
    decode_first = decode_sms % multiple_sms == 0
    first_sms = decode_sms if decode_first else prefill_sms
    parts, _, rest = value_of(
        driver,
        f"cuDevSmResourceSplitByCount({first_sms})",
        driver.cuDevSmResourceSplitByCount(1, whole, 0, first_sms),
    )
    sides = (rest, parts[0]) if decode_first else (parts[0], rest)
    prefill, decode = (_stream(driver, device, kind, part) for part in sides)
    if (prefill.sms, decode.sms) != (prefill_sms, decode_sms):
        raise EngineError(
            f"partition {prefill_sms},{decode_sms}: the driver gave {prefill.sms},{decode.sms} SMs instead"
        )
    return prefill, decode


def _stream(driver: Any, device: Any, kind: Any, part: Any) -> GreenStream:
    description = value_of(driver, "cuDevResourceGenerateDesc", driver.cuDevResourceGenerateDesc([part], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    context = value_of(driver, "cuGreenCtxCreate", driver.cuGreenCtxCreate(description, device, flags))
    got = value_of(driver, "cuGreenCtxGetDevResource", driver.cuGreenCtxGetDevResource(context, kind))
    stream = value_of(
        driver,
        "cuGreenCtxStreamCreate",
        driver.cuGreenCtxStreamCreate(context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0),
    )
    return GreenStream(sms=int(got.sm.smCount), handle=int(stream), context=context)
