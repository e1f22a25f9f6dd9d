"""What the device can be split into, and the file that tells SGLang how many groups there are."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.partitions import PartitionTable, SmRules
from pdmuxd.engine.sglang.launch.memory import total_memory_bytes
from pdmuxd.engine.sglang.partition_tables import sm_rules_of
from pdmuxd.engine.sglang.streams.cpu import TOTAL_SMS

# Values of CUdevice_attribute in cuda.h.
_MULTIPROCESSOR_COUNT = 16
_CAPABILITY_MAJOR = 75
# Values of CUresult: CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE.
_NONE_FOUND = (100, 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What there is to serve on."""

    rules: SmRules
    gpus: int | None
    """None for the stand-in on a CPU."""
    memory_bytes: int | None = None
    """Of the first of them."""


def find_device(*, on_cpu: bool) -> Device:
    """The rules of the first GPU, asked without making a context on it. Raises: EngineError."""
    if on_cpu:
        return Device(rules=sm_rules_of(TOTAL_SMS, capability=9), gpus=None)
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise EngineError("there is no GPU here: its driver (libcuda.so.1) is not installed") from None
    device, sms, major, gpus = (ctypes.c_int(0) for _ in range(4))
    status = library.cuInit(0) or library.cuDeviceGet(ctypes.byref(device), 0)
    if status in _NONE_FOUND:
        raise EngineError("there is no GPU here: its driver finds none")
    if status:
        raise EngineError(f"the GPU's driver cannot be used: {_error_name(library, status)}")
    if not hasattr(library, "cuGreenCtxCreate"):
        raise EngineError("the GPU's driver has no green contexts; multiplexing needs a driver for CUDA 12.4")
    library.cuDeviceGetAttribute(ctypes.byref(sms), _MULTIPROCESSOR_COUNT, device)
    library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
    library.cuDeviceGetCount(ctypes.byref(gpus))
    return Device(
        rules=sm_rules_of(sms.value, capability=major.value),
        gpus=gpus.value,
        memory_bytes=total_memory_bytes(library, device),
    )


def _error_name(library: ctypes.CDLL, status: int) -> str:
    name = ctypes.c_char_p()
    if library.cuGetErrorName(status, ctypes.byref(name)) or name.value is None:
        return f"error {status}"
    return name.value.decode()


def write_groups_file(path: Path, table: PartitionTable) -> int:
    """Write SGLang's YAML (a JSON text is one) for its user alone; returns the number of groups.

    SGLang sizes its streams from the file and its attention backends from a flag, and fails at the first
    decode step where the two differ: both are to come from here. The third number of a division is the
    decode batch size from which SGLang's own loop would take it; ours does not ask.
    """
    divisions = ", ".join(f"[{split.prefill_sms}, {split.decode_sms}, 1]" for split in table.splits)
    groups = len(table.groups)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(f'{{"sm_group_num": {groups}, "manual_divisions": [{divisions}]}}\n')
    return groups
