"""Which engine serves, and how it is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pdmuxd.daemon.doctor.libcuda import ask_driver
from pdmuxd.daemon.settings import places
from pdmuxd.daemon.settings.engine import EngineSection, SglangSection
from pdmuxd.daemon.supervisor.plan import Command, emulator_command, sglang_command
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.policies.registry import NO_PREFILL_GRAPHS, parse_policy
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.sglang.launch.adapters import check_adapters
from pdmuxd.engine.sglang.launch.checks import check_model, check_tp_size
from pdmuxd.engine.sglang.launch.flags import split_extra
from pdmuxd.engine.sglang.launch.mode import mode_of

EMULATOR_START_S = 60.0
SGLANG_START_S = 1200.0
"""A 70B model from a network disk, and graphs for each partition group."""
_ENVIRONMENT = ".venv-sglang"


KERNELS_FILE = "partition-kernels.json"
"""In the state directory: which kernels are fastest on each partition, for SGLang's next start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """One engine, ready to be started."""

    command: Command
    command_for: Callable[[str, str | None], Command]
    """With another policy than the settings', and other splits unless None."""
    model: str
    """Its name in the API."""
    described: str
    """In a few words, for people."""
    start_timeout_s: float
    mode: str | None = None
    """How its model is expected to be served, split or in fused steps; None if that is not known."""
    why: str | None = None
    """What of it may surprise: why it is this one, or what it does not do."""


def choose_engine(settings: EngineSection, state_dir: Path | None = None) -> EngineChoice:
    """What `engine.kind` means on this machine; what an engine may keep goes to `state_dir`.

    Raises: SettingsError naming the key for a model or Python that is not there; ProfileError.
    """
    if settings.kind == "sglang":
        return _sglang(settings, state_dir)
    if settings.kind == "emulator":
        return _emulator(settings, why=None)
    if not has_gpu():
        if settings.sglang.model is not None:
            raise SettingsError(
                f"engine.sglang.model is {settings.sglang.model!r}, but no GPU is found (see pdmuxd doctor): "
                "set engine.kind to emulator for made-up answers, or to sglang to try all the same"
            )
        return _emulator(settings, why="there is no GPU here, so the engine is emulated")
    if settings.sglang.model is None:
        return _emulator(settings, why="there is a GPU, but engine.sglang.model is unset: emulating one")
    return _sglang(settings, state_dir)


def _emulator(settings: EngineSection, *, why: str | None) -> EngineChoice:
    profile = load_profile(settings.profile)

    def command_for(policy: str, _partitions: str | None = None) -> Command:
        # It makes any split while it serves.
        return emulator_command(profile=settings.profile, policy=policy, served_model=settings.model_name)

    return EngineChoice(
        command=command_for(settings.policy),
        command_for=command_for,
        model=settings.model_name or profile.model.name,
        described=f"emulated GPU, profile {profile.name}",
        start_timeout_s=settings.start_timeout_s or EMULATOR_START_S,
        why=why,
    )


def _sglang(settings: EngineSection, state_dir: Path | None) -> EngineChoice:
    section = settings.sglang
    model = section.model or ""
    try:
        check_model(model)
    except SettingsError as error:
        raise SettingsError(f"engine.sglang.model: {error}") from error
    try:
        check_tp_size(model, section.tp_size, gpus=None)
    except SettingsError as error:
        raise SettingsError(f"engine.sglang.tp_size: {error}") from error
    try:
        check_adapters(model, split_extra(section.extra_args))
    except SettingsError as error:
        raise SettingsError(f"engine.sglang.extra_args: {error}") from error
    name = settings.model_name or model.rstrip("/").rpartition("/")[2]
    gpus = f"{section.tp_size} GPUs" if section.tp_size > 1 else "one GPU"
    python = sglang_python(section, state_dir)

    def command_for(policy: str, partitions: str | None = None) -> Command:
        return sglang_command(
            python=python,
            model=str(Path(model).expanduser()) if model.startswith("~") else model,
            served_model=name,
            policy=policy,
            tp_size=section.tp_size,
            partitions=partitions or section.partitions,
            partition_kernels=section.partition_kernels,
            kernels_file=None if state_dir is None else state_dir / KERNELS_FILE,
            extra=split_extra(section.extra_args),
        )

    return EngineChoice(
        command=command_for(settings.policy),
        command_for=command_for,
        model=name,
        described=f"SGLang on {gpus}, model {model}",
        start_timeout_s=settings.start_timeout_s or SGLANG_START_S,
        mode=mode_of(model, split_extra(section.extra_args), tp_size=section.tp_size),
        why=_not_done(settings.policy),
    )


def _not_done(policy: str) -> str | None:
    if parse_policy(policy).wants_prefill_graphs:
        return f"policy {policy}: {NO_PREFILL_GRAPHS}"
    return None


def sglang_python(section: SglangSection, state_dir: Path | None = None) -> Path:
    """The interpreter that has SGLang. Raises: SettingsError if there is none."""
    if section.python is not None:
        python = places.absolute(section.python)
        if not python.is_file():
            raise SettingsError(f"engine.sglang.python is {python}: allowed is a Python that has SGLang")
        return python
    if find_spec("sglang") is not None:
        return Path(sys.executable)
    folders = [Path(sys.prefix).parent / _ENVIRONMENT]
    if state_dir is not None:
        folders.insert(0, state_dir / places.SGLANG_FOLDER)
    for folder in folders:
        python = folder / "bin" / "python"
        if python.is_file():
            return python
    raise SettingsError(
        "engine.sglang.python is unset, this Python has no SGLang, and there is none in "
        f"{' or '.join(str(folder) for folder in folders)}: install it with pdmuxd install-sglang, or set it"
    )


def has_gpu() -> bool:
    """Whether the driver knows of a GPU."""
    driver = ask_driver()
    return driver is not None and bool(driver.gpus)
