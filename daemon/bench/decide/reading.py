"""Turns the words of a command line into what is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pdmuxd.daemon.bench.arms import split_names
from pdmuxd.daemon.bench.decide.checks import check_machine, check_profile, check_room
from pdmuxd.daemon.bench.decide.wanted import TRACE, Load, Wanted, contenders
from pdmuxd.daemon.bench.load.workload import TtftTarget
from pdmuxd.daemon.bench.models import ServedModel, emulated_model, model_in
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.generate import KINDS
from pdmuxd.daemon.replay.shape import Shaping, shape
from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.daemon.settings.engine import SglangSection
from pdmuxd.daemon.supervisor.choice import sglang_python
from pdmuxd.engine.core.errors import InvalidValueError, SettingsError, TraceError
from pdmuxd.engine.core.slo import TBT_RANGE_S
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, load_profile
from pdmuxd.engine.sglang.launch.flags import split_extra

Number = TypeVar("Number", int, float)
MOST_VALUES = 50
MOST_REQUESTS = 200_000
"""Of a run: their prompts are written before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The command line."""

    engine: str
    model: Path | None
    arms: str
    profile: str | None
    tp_size: int
    python: Path | None
    sglang_args: str
    trace: Path | None
    trace_format: str | None
    load: str | None
    rates: str
    tbt_ms: str
    ttft_fixed_ms: float
    ttft_per_1k_ms: float
    attainment: float
    seeds: str
    duration_s: float
    drain_s: float

    def sglang_python(self) -> Path:
        """Raises: SettingsError where no Python has SGLang."""
        try:
            return sglang_python(SglangSection(python=self.python))
        except SettingsError as error:
            raise SettingsError(f"{error}; here: --python PATH") from error


def read(given: Given) -> Wanted:
    """Raises: InvalidValueError, TraceError, ProfileError, SettingsError, naming the option."""
    emulated = given.engine == "emulated"
    model = _model(given)
    device = load_profile(model.emulator_profile or DEFAULT_PROFILE).policy_context
    load = _load(given, model)
    rates = _values("--rates", given.rates, float, 0.001, 10_000.0)
    if max(rates) * given.duration_s > MOST_REQUESTS:
        most = f"--rates times --duration-s may be {MOST_REQUESTS:,} requests at most"
        raise InvalidValueError("--rates", most)
    wanted = Wanted(
        engine=given.engine,
        model=model,
        contenders=contenders(split_names(given.arms), device, emulated=emulated),
        load=load,
        rates=tuple(sorted(rates)),
        tbt_ms=_values("--tbt-ms", given.tbt_ms, float, TBT_RANGE_S[0] * 1e3, TBT_RANGE_S[1] * 1e3),
        seeds=_values("--seeds", given.seeds, int, 1, 10_000),
        attainment_ratio=given.attainment,
        drain_s=given.drain_s,
        tp_size=given.tp_size,
        extra=split_extra(given.sglang_args),
        profile=None if emulated or given.profile is None else Path(given.profile),
    )
    for run in wanted.runs():
        if not load.requests(run.cell, run.seed):
            text = f"--rates: no request arrives within {given.duration_s:g} s at {run.cell.rate:g} a second"
            raise InvalidValueError("--rates", text)
    return wanted


def check(wanted: Wanted, python: Path | None, folder: Path, *, on_gpu: bool) -> None:
    """What would only show after a while. Raises: SettingsError, ProfileError."""
    if python is not None:
        check_machine(python=python, tp_size=wanted.tp_size, on_gpu=on_gpu)
    check_profile(wanted.profile)
    check_room(folder)


def _model(given: Given) -> ServedModel:
    if given.engine == "emulated":
        return emulated_model(given.profile or DEFAULT_PROFILE)
    if given.model is None:
        raise InvalidValueError("--model", "--model: name the model's folder, or give --engine emulated")
    return model_in(given.model)


def _load(given: Given, model: ServedModel) -> Load:
    if given.trace is not None and given.load is not None:
        raise InvalidValueError("--load", "--trace and --load cannot be given together")
    kind = TRACE if given.trace is not None else given.load or "chat"
    if kind != TRACE and kind not in KINDS:
        raise InvalidValueError("--load", f"--load is {kind!r}; allowed is one of {', '.join(KINDS)}")
    return Load(
        kind=kind,
        trace=None if given.trace is None else _trace(given.trace, given.trace_format, model),
        ttft=TtftTarget(fixed_s=given.ttft_fixed_ms / 1e3, per_1k_s=given.ttft_per_1k_ms / 1e3),
        duration_s=given.duration_s,
        most_tokens=model.context_tokens,
    )


def _trace(path: Path, trace_format: str | None, model: ServedModel) -> Trace:
    found, requests = open_trace(path, trace_format)
    trace = shape(path, found, requests, Shaping(sort=True))
    if len(trace.requests) < 2:
        raise TraceError(f"{path}: it has one request; two at least make a rate")
    if not any(one.input_tokens + one.output_tokens <= model.context_tokens for one in trace.requests):
        raise TraceError(f"{path}: every request is longer than the model's {model.context_tokens:,} tokens")
    return trace


def _values(
    flag: str, text: str, kind: Callable[[str], Number], low: Number, high: Number
) -> tuple[Number, ...]:
    """Different numbers within a range."""
    try:
        found = tuple(kind(word) for word in text.split(","))
    except ValueError:
        found = ()
    fits = found and all(math.isfinite(value) and low <= value <= high for value in found)
    if not fits or len(set(found)) < len(found) or len(found) > MOST_VALUES:
        allowed = f"different numbers from {low:g} to {high:g} with commas between them"
        raise InvalidValueError(flag, f"{flag} is {text[:40]!r}; allowed are {allowed}")
    return found
