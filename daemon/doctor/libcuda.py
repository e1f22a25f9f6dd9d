"""Asks NVIDIA's driver library, without the CUDA toolkit and without making a context on any GPU.

The cuda-python package wraps these same calls; going to the library works with and without it.
"""

from __future__ import annotations

import ctypes

from pdmuxd.daemon.doctor.gpu import CudaDriver, Gpu
from pdmuxd.engine.sglang.launch.memory import total_memory_bytes

LIBRARY = "libcuda.so.1"

# Values of CUdevice_attribute in cuda.h.
_MULTIPROCESSOR_COUNT = 16
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
_NAME_BYTES = 256


def ask_driver() -> CudaDriver | None:
    """What the driver says of itself and its GPUs; None if there is no driver library."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    version = ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    gpus, error = _gpus(library)
    return CudaDriver(
        cuda=(version.value // 1000, version.value % 1000 // 10),
        has_green_contexts=hasattr(library, "cuGreenCtxCreate"),
        gpus=gpus,
        error=error,
    )


def _gpus(library: ctypes.CDLL) -> tuple[tuple[Gpu, ...], str | None]:
    code = library.cuInit(0)
    count = ctypes.c_int(0)
    if code == 0:
        code = library.cuDeviceGetCount(ctypes.byref(count))
    if code != 0:
        return (), _error_name(library, code)
    return tuple(_gpu(library, index) for index in range(count.value)), None


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    device = ctypes.c_int(0)
    library.cuDeviceGet(ctypes.byref(device), index)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    library.cuDeviceGetName(name, _NAME_BYTES, device)

    def attribute(which: int) -> int:
        value = ctypes.c_int(0)
        library.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    return Gpu(
        name=name.value.decode("utf-8", "replace"),
        sms=attribute(_MULTIPROCESSOR_COUNT),
        capability=(attribute(_CAPABILITY_MAJOR), attribute(_CAPABILITY_MINOR)),
        memory_bytes=total_memory_bytes(library, device),
    )


def _error_name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode("ascii", "replace") if text.value else f"CUDA error {code}"
