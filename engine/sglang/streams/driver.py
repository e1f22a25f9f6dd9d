"""The CUDA driver through cuda-python, and its answers as values or errors."""

from __future__ import annotations

from typing import Any

from pdmuxd.engine.core.errors import EngineError


def load_driver() -> Any:
    """The bindings. Raises: EngineError without them, or where the driver has no green contexts."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EngineError(
            "cuda-python (cuda.bindings) is not installed; the engine needs it for green contexts"
        ) from error
    version = value_of(driver, "cuDriverGetVersion", driver.cuDriverGetVersion())
    if version < 12040 or not hasattr(driver, "cuGreenCtxStreamCreate"):
        raise EngineError(
            f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}; green contexts need 12.4"
        )
    return driver


def value_of(driver: Any, call: str, answer: tuple[Any, ...]) -> Any:
    """The value of a driver call. Raises: EngineError with the driver's own name of what went wrong."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise EngineError(f"{call} failed: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)
