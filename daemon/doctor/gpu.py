"""Driver, CUDA and green contexts, asked of the driver library itself; and what SGLang needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdmuxd.daemon.doctor.findings import Finding, info, ok, warn
from pdmuxd.engine.sglang.api.versions import RANGE, REQUIREMENT, TESTED, is_supported

GREEN_CONTEXT_CUDA = (12, 4)
"""CUDA's release notes: cuGreenCtxCreate came with 12.4."""
GREEN_CONTEXT_CAPABILITY = (9, 0)
"""Hopper, the oldest GPU that pdmuxd's partitions were made for; older ones split SMs as well."""
EMULATED = "the emulated engine will be used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as the driver describes it."""

    name: str
    sms: int
    capability: tuple[int, int]
    memory_bytes: int | None = None
    """None if the driver does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDriver:
    """What libcuda.so.1 says; `gpus` is empty and `error` says why if it found none."""

    cuda: tuple[int, int]
    """The newest CUDA that this driver runs."""
    has_green_contexts: bool
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None


def check_gpu(driver: CudaDriver | None, driver_version: str | None) -> Iterator[Finding]:
    """Whether prefill and decode could share a GPU here. A machine without one is not at fault."""
    if driver is None:
        yield info("gpu", f"no NVIDIA driver library (libcuda.so.1): {EMULATED}")
        return
    if not driver.gpus:
        reason = driver.error or "the driver found no device"
        yield info("gpu", f"no usable GPU ({reason}): {EMULATED}")
        return
    names = ", ".join(f"{gpu.name} ({gpu.sms} SMs)" for gpu in driver.gpus)
    yield ok("gpu", names)
    yield ok("driver", driver_version or "version unknown: /proc/driver/nvidia is not mounted")
    yield _cuda(driver)
    yield _green_contexts(driver)


def check_sglang(version: str | None, cuda_python: str | None) -> Iterator[Finding]:
    """Which SGLang this environment has; absent is fine, for the emulator does without."""
    if version is None:
        yield info("sglang", f"not installed in this environment: {EMULATED}")
        return
    if version in TESTED:
        yield ok("sglang", f"{version}, a version that pdmuxd is tested with")
    elif is_supported(version):
        yield warn(
            "sglang",
            f"{version}: in the range that pdmuxd runs with ({RANGE}), but not tested",
            f"to be sure, install sglang=={TESTED[-1]}",
        )
    else:
        yield warn(
            "sglang", f"{version}; pdmuxd runs with {RANGE}", f"install '{REQUIREMENT}' for an SGLang engine"
        )
    if cuda_python is None:
        yield info("cuda-python", "not installed: green contexts cannot report the SMs that they got")
    else:
        yield ok("cuda-python", cuda_python)


def _cuda(driver: CudaDriver) -> Finding:
    version = "{}.{}".format(*driver.cuda)
    if driver.cuda < GREEN_CONTEXT_CUDA:
        needed = "{}.{}".format(*GREEN_CONTEXT_CUDA)
        return warn(
            "cuda", f"the driver runs CUDA up to {version}", f"green contexts need {needed}: update it"
        )
    return ok("cuda", f"the driver runs CUDA up to {version}")


def _green_contexts(driver: CudaDriver) -> Finding:
    if not driver.has_green_contexts:
        return warn(
            "green contexts", "the driver library has no cuGreenCtxCreate", "update the NVIDIA driver"
        )
    old = [gpu for gpu in driver.gpus if gpu.capability < GREEN_CONTEXT_CAPABILITY]
    if old:
        found = ", ".join("{} is {}.{}".format(gpu.name, *gpu.capability) for gpu in old)
        needed = "{}.{}".format(*GREEN_CONTEXT_CAPABILITY)
        return warn(
            "green contexts",
            f"supported, but compute capability of {found}",
            f"pdmuxd's partitions are made for {needed} and newer: use another GPU, or the emulated engine",
        )
    return ok("green contexts", "supported by the driver and the GPU")
