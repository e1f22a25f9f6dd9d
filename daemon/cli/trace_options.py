"""Options and steps that the commands which read a trace share."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from pdmuxd.daemon.cli import completing
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.shape import Shaping, TooLong, fit, shape
from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.engine.core.policies.registry import build_policy, known_policies
from pdmuxd.engine.core.slo import (
    ATTAINMENT_RANGE,
    DEFAULT_SLO,
    E2E_RANGE_S,
    TTFT_FIXED_RANGE_S,
    TTFT_PER_1K_RANGE_S,
)
from pdmuxd.engine.emulator.fleet import is_fleet, parse_fleet
from pdmuxd.engine.emulator.noise import STALL_S, DeviceNoise, KindBias, WorkKind
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, Profile, load_profile


def target_option(flag: str, range_s: tuple[float, float], text: str) -> OptionInfo:
    """A latency target in milliseconds, within the range that an SLO allows in seconds."""
    option: OptionInfo = typer.Option(flag, min=range_s[0] * 1000.0, max=range_s[1] * 1000.0, help=text)
    return option


POLICY_SYNTAX = ", ".join(info.syntax for info in known_policies())

TRACE = typer.Argument(metavar="TRACE", help="Mooncake JSONL, Azure CSV, or pdmuxd's own JSONL.")
FORMAT = typer.Option(
    "--format",
    metavar="NAME",
    help="The trace's format, where the first line does not tell it: mooncake, azure, native, or another "
    "package's.",
    autocompletion=completing.trace_formats,
)
PROFILE = typer.Option(
    "--profile", help="A shipped profile, or a JSON file.", autocompletion=completing.profiles
)
NOISE = typer.Option(
    "--noise",
    metavar="BIAS,SCATTER,STALLS[,KIND[@SIZE]=BIAS...]",
    help="Let the device differ from its profile, in percent: how much longer all work takes, how much each "
    f"piece of work scatters (sigma), how many pieces stand still for {STALL_S * 1000.0:g} ms, or how long "
    "and how often all does (30ms@1.6s); and how much longer decode, fused or prefill takes by itself, "
    "from so many requests or new tokens on.",
)
SORT = typer.Option("--sort", help="Accept a trace that is not in order of arrival.")
DROP = typer.Option("--drop-too-long", help="Leave out requests that the engine cannot hold.")
CLIP = typer.Option("--clip", help="Shorten requests that the engine cannot hold.")
TTFT_FIXED = target_option("--ttft-fixed-ms", TTFT_FIXED_RANGE_S, "TTFT target, fixed part.")
TTFT_PER_1K = target_option(
    "--ttft-per-1k-ms", TTFT_PER_1K_RANGE_S, "TTFT target, per 1,000 new prompt tokens."
)
E2E = target_option("--e2e-ms", E2E_RANGE_S, "Target for whole answers; none unless given.")
ATTAINMENT = typer.Option(
    "--attainment", min=ATTAINMENT_RANGE[0], max=ATTAINMENT_RANGE[1], help="Share that must meet a target."
)
JSON = typer.Option("--json", metavar="PATH", help="Write the numbers as JSON.")
HTML = typer.Option("--html", metavar="PATH", help="Write a report with plots, one file that works offline.")
JOBS = typer.Option("--jobs", min=1, max=64, help="Runs at the same time, each in a process.")
NO_PROGRESS = typer.Option("--no-progress", help="No progress bar, even on a terminal.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Which requests of a trace, and what engine they are for."""

    profile: Annotated[str, PROFILE] = DEFAULT_PROFILE
    noise: Annotated[str | None, NOISE] = None
    trace_format: Annotated[str | None, FORMAT] = None
    sort: Annotated[bool, SORT] = False
    drop_too_long: Annotated[bool, DROP] = False
    clip: Annotated[bool, CLIP] = False

    @property
    def too_long(self) -> TooLong:
        """What to do with requests that the engine cannot hold. Raises: BadParameter for two answers."""
        refuse_together(self.drop_too_long and self.clip, "--drop-too-long", "--clip")
        return TooLong.DROP if self.drop_too_long else TooLong.CLIP if self.clip else TooLong.REFUSE

    def load_profile(self) -> Profile:
        """The profile, with the noise that was asked for. Raises: ProfileError, BadParameter."""
        loaded = load_profile(self.profile)
        return loaded if self.noise is None else replace(loaded, noise=parse_noise(self.noise))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """The targets of each request, without TBT, which each command reads in its own way."""

    ttft_fixed_ms: Annotated[float, TTFT_FIXED] = DEFAULT_SLO.ttft_fixed_s * 1000.0
    ttft_per_1k_ms: Annotated[float, TTFT_PER_1K] = DEFAULT_SLO.ttft_per_1k_new_tokens_s * 1000.0
    attainment: Annotated[float, ATTAINMENT] = DEFAULT_SLO.attainment_ratio
    e2e_ms: Annotated[float | None, E2E] = None

    @property
    def e2e_s(self) -> float | None:
        """The target of whole answers, if there is one."""
        return None if self.e2e_ms is None else self.e2e_ms / 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How it is run and where the results go."""

    jobs: Annotated[int, JOBS] = 1
    json: Annotated[Path | None, JSON] = None
    html: Annotated[Path | None, HTML] = None
    no_progress: Annotated[bool, NO_PROGRESS] = False


_BIAS_PERCENT = (-50.0, 100.0)
_CLOCK = re.compile(r"(\d+(?:\.\d+)?)ms@(\d+(?:\.\d+)?)s")
_KIND_BIAS = re.compile(rf"({'|'.join(WorkKind)})(?:@(\d{{1,7}}))?=([-+]?\d+(?:\.\d+)?)")


def parse_noise(text: str) -> DeviceNoise:
    """`BIAS,SCATTER,STALLS[,KIND[@SIZE]=BIAS...]` in percent; STALLS may be `30ms@1.6s`.

    Raises: BadParameter.
    """
    ranges = (_BIAS_PERCENT, (0.0, 50.0), (0.0, 10.0))
    parts = text.split(",")
    clock = _CLOCK.fullmatch(parts[2].strip()) if len(parts) > 2 else None
    if clock is not None:
        parts[2] = "0"
    percent = [number for part in parts[: len(ranges)] if (number := _finite(part)) is not None]
    found = [_KIND_BIAS.fullmatch(part.strip()) for part in parts[len(ranges) :]]
    by_kind = [
        KindBias(kind=WorkKind(one[1]), from_size=int(one[2] or 0), bias_ratio=float(one[3]) / 100.0)
        for one in found
        if one is not None
    ]
    if (
        len(percent) != len(ranges)
        or len(by_kind) != len(found)
        or not all(low <= one <= high for one, (low, high) in zip(percent, ranges, strict=True))
        or not (clock is None or 0.0 < float(clock[1]) < 1000.0 * float(clock[2]) <= 60_000.0)
        or not all(_BIAS_PERCENT[0] <= 100.0 * one.bias_ratio <= _BIAS_PERCENT[1] for one in by_kind)
    ):
        raise typer.BadParameter(
            f"{text!r} is not allowed; give bias from -50 to 100, scatter from 0 to 50 and stalls from 0 to "
            "10 percent, or their length and period of at most 60 s as in 30ms@1.6s, with commas between, "
            "such as 8,6,0.3; behind them, at will, the bias of decode, fused or prefill alone, from a size "
            "on, such as 8,6,0.3,fused@512=20,prefill=-10",
            param_hint="'--noise'",
        )
    bias, scatter, stalls = (one / 100.0 for one in percent)
    noise = DeviceNoise(bias_ratio=bias, scatter_ratio=scatter, stall_ratio=stalls, by_kind=tuple(by_kind))
    if clock is None:
        return noise
    return replace(noise, stall_s=float(clock[1]) / 1000.0, stall_every_s=float(clock[2]))


def _finite(text: str) -> float | None:
    """The number that `text` says, if it says one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def refuse_together(both: bool, one: str, other: str) -> None:
    """Refuse two options that contradict each other."""
    if both:
        raise typer.BadParameter(f"{one} and {other} cannot be given together")


def checked_policies(given: Sequence[str], profile: Profile, flag: str) -> list[str]:
    """Check every policy against the device before the first one runs.

    Raises: PolicyError, PartitionError; BadParameter for one that is given twice.
    """
    policies = [spec.strip() for spec in given]
    for index, spec in enumerate(policies):
        one = parse_fleet(spec).instance_policy if is_fleet(spec) else spec
        build_policy(one, profile.policy_context)
        if spec in policies[:index]:
            raise typer.BadParameter(f"{flag} {spec} is given twice")
    return policies


def load_trace(
    path: Path, trace_format: str | None, shaping: Shaping, profile: Profile, too_long: TooLong
) -> Trace:
    """Read a trace, select its requests, and fit them to what the profile's engine can hold.

    Raises: TraceError.
    """
    found, requests = open_trace(path, trace_format)
    context, pool = profile.model.max_context_tokens, profile.kv_capacity_tokens
    name = f"the model's context of {context:,}" if context <= pool else f"the KV pool of {pool:,}"
    return fit(shape(path, found, requests, shaping), min(context, pool), too_long, f"{name} tokens")


def command_line(ctx: typer.Context, command: str) -> str:
    """The command that was given, as the shell wants it: every option that is not at its default."""
    words = ["pdmuxd", command]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if value is None or value == parameter.default or parameter.name == "no_progress":
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        for item in values:
            if parameter.param_type_name == "argument":
                words.append(str(item))
            elif item is True:
                words.append(parameter.opts[0])
            else:
                words += [parameter.opts[0], f"{item:g}" if isinstance(item, float) else str(item)]
    return shlex.join(words)
