"""How a model would be served here, by its folder alone: split or not and why, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterator

from pdmuxd.daemon.doctor.findings import Finding, fail, info, ok, warn
from pdmuxd.daemon.doctor.gpu import CudaDriver
from pdmuxd.daemon.settings.engine import SglangSection
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.adapters import check_adapters
from pdmuxd.engine.sglang.launch.checks import check_model, check_tp_size
from pdmuxd.engine.sglang.launch.flags import split_extra
from pdmuxd.engine.sglang.launch.memory import FLAG, GB, choose_fraction, weights_of
from pdmuxd.engine.sglang.launch.mode import SPLIT, mode_of, names_a_class

_GIVE = "give the folder of a model, with its config.json"


def check_folder(model: str, section: SglangSection, driver: CudaDriver | None) -> Iterator[Finding]:
    """Check a model's folder, with the flags and the number of GPUs of the settings."""
    tp_size = section.tp_size
    try:
        extra = split_extra(section.extra_args)
        check_model(model)
        check_tp_size(model, tp_size, gpus=None)
    except SettingsError as error:
        yield fail("model", str(error), _GIVE)
        return
    try:
        check_adapters(model, extra)
    except SettingsError as error:
        yield fail("adapters", str(error), "see docs/sglang.md, Adapters")
    if not names_a_class(model):
        yield warn(
            "class", "config.json has no list of architectures, by which SGLang finds the class", _GIVE
        )
    mode = mode_of(model, extra, tp_size=tp_size)
    if mode is None:
        yield info("model", f"{model} is a hub's: nothing is known of it before SGLang has fetched it")
        return
    yield (
        ok("model", mode)
        if mode == SPLIT
        else info("model", mode, "see docs/sglang.md, Which models are split")
    )
    weights = weights_of(model, extra, tp_size=tp_size)
    if weights is None:
        yield info("weights", "how much memory they take is not known")
        return
    memory_bytes = driver.gpus[0].memory_bytes if driver is not None and driver.gpus else None
    try:
        fraction = choose_fraction(weights, memory_bytes, extra, tp_size=tp_size)
    except SettingsError as error:
        yield fail("weights", str(error), "see engine.sglang.tp_size and engine.sglang.extra_args")
        return
    gpu = "no GPU is here to hold them" if memory_bytes is None else f"of {memory_bytes / GB:.0f}"
    chosen = f"; {FLAG} will be {fraction:g}" if fraction is not None else ""
    yield ok("weights", f"{weights.bytes_per_gpu / GB:.1f} GB on each GPU, {gpu}{chosen}")
