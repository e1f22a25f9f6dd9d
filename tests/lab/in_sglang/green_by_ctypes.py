"""Green contexts without cuda-python, for measurements on a machine that has PyTorch alone.

Like `streams/green.py`, through ctypes. Source: cuda.h of CUDA 13 (CUdevResource has 144 bytes).
"""

from __future__ import annotations

import ctypes as c

from pdmuxd.engine.core.errors import EngineError

_SM, _DEFAULT_STREAM, _NON_BLOCKING = 1, 1, 1


class _Resource(c.Structure):
    """CUdevResource."""

    _fields_ = [("kind", c.c_int), ("_pad", c.c_ubyte * 92), ("sms", c.c_uint), ("_rest", c.c_ubyte * 44)]


def split_streams(first_sms: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(stream, SMs) of whole groups of `first_sms` SMs, and of what is left. Raises: EngineError."""
    try:
        driver = c.CDLL("libcuda.so.1")
    except OSError as error:
        raise EngineError(f"there is no driver: {error}") from error

    def call(name: str, *arguments: object) -> None:
        try:
            status = getattr(driver, name)(*arguments)
        except AttributeError as error:
            raise EngineError(f"the driver has no {name}") from error
        if status:
            raise EngineError(f"{name} failed with {status}")

    device, whole, part, rest = c.c_int(), _Resource(), _Resource(), _Resource()
    groups = c.c_uint(1)
    call("cuDeviceGet", c.byref(device), 0)
    call("cuDeviceGetDevResource", device, c.byref(whole), _SM)
    call(
        "cuDevSmResourceSplitByCount",
        *(c.byref(part), c.byref(groups), c.byref(whole), c.byref(rest), 0, first_sms),
    )

    def stream(resource: _Resource) -> tuple[int, int]:
        description, context, made = c.c_void_p(), c.c_void_p(), c.c_void_p()
        call("cuDevResourceGenerateDesc", c.byref(description), c.byref(resource), 1)
        call("cuGreenCtxCreate", c.byref(context), description, device, _DEFAULT_STREAM)
        call("cuGreenCtxStreamCreate", c.byref(made), context, _NON_BLOCKING, 0)
        return int(made.value or 0), int(resource.sms)

    return stream(part), stream(rest)
