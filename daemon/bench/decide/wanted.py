"""What a user asks to be measured, as runs; and the folder that remembers what was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.workload import Cell, Request, TtftTarget, from_trace
from pdmuxd.daemon.bench.models import ServedModel
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.replay.generate import KINDS, generate
from pdmuxd.daemon.replay.trace import Trace, TraceRequest
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, PartitionError, TraceError
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy

TRACE = "trace"
_EMULATED = {"stock": "prefill-first", "pdmux": "upstream"}
_SEED_STEP = 7919
"""How far apart in a trace two seeds begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """An engine as a user names it, and how it is run."""

    name: str
    arm: Arm

    @property
    def is_ours(self) -> bool:
        """Else it is SGLang's own."""
        return self.name.startswith("ours:")


def contenders(names: Sequence[str], device: PolicyContext, *, emulated: bool) -> tuple[Contender, ...]:
    """`device` is the emulated one; of a real one only the policy's name can be checked beforehand.

    Raises: InvalidValueError for a name that is none, is given twice, or stands for one side alone;
    PolicyError or PartitionError for a policy that is none, or none of the device.
    """
    if len(set(names)) != len(names):
        raise InvalidValueError("--arms", "--arms: one is given twice")
    found = tuple(Contender(name=name, arm=_arm(name, emulated=emulated)) for name in names)
    if {one.is_ours for one in found} != {True, False}:
        text = "--arms: at least one of ours:POLICY and one of SGLang's own (stock, chunk-N, pdmux)"
        raise InvalidValueError("--arms", text)
    for one in found:
        try:
            build_policy(one.arm.policy or "auto", device)
        except PartitionError:
            if emulated:
                raise
    if len({one.arm for one in found}) != len(found):
        raise InvalidValueError("--arms", "--arms: two of them are the same on the emulated engine")
    return found


def _arm(name: str, *, emulated: bool) -> Arm:
    try:
        arm = Arm(name=name)
    except InvalidValueError:
        arm = None
    if arm is None or arm.server == "emulator":
        allowed = "stock, chunk-N, pdmux and ours:POLICY, with commas between them"
        raise InvalidValueError("--arms", f"--arms: {name!r} is none; allowed are {allowed}")
    if not emulated:
        return arm
    policy = arm.policy or _EMULATED.get(name) or f"chunked:{name.removeprefix('chunk-')}"
    return Arm(name=f"emulator:{policy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Where requests come from: a trace's, at a rate of one's choice, or a generated kind."""

    kind: str
    """TRACE, or one of `pdmuxd generate`."""
    trace: Trace | None = None
    ttft: TtftTarget
    duration_s: float
    most_tokens: int
    """A request's prompt and answer together; longer ones are left out."""

    def requests(self, cell: Cell, seed: int) -> list[Request]:
        """The requests of a run, in order of arrival: the same for all engines.

        A trace's are consecutive ones, with the pauses between them stretched or shortened alike.
        """
        if self.trace is None:
            rows = generate(self.kind, rate_per_s=cell.rate, duration_s=self.duration_s, seed=seed)
        else:
            rows = _window(self.trace, cell.rate, self.duration_s, seed)
        fitting = [row for row in rows if row.input_tokens + row.output_tokens <= self.most_tokens]
        return from_trace(fitting, name=f"{cell}/{seed}", ttft=self.ttft)

    @property
    def text(self) -> str:
        if self.trace is None:
            return f"{self.kind}: {KINDS[self.kind].about}"
        return f"{self.trace.path} ({len(self.trace.requests):,} requests)"


def _window(trace: Trace, rate: float, duration_s: float, seed: int) -> list[TraceRequest]:
    """Requests one after the other from a place that the seed chooses, beginning again at the end."""
    rows = trace.requests
    if trace.span_s <= 0.0:
        raise TraceError(f"{trace.path}: its requests come all at once; no rate can be made of that")
    # The pause after the last request is the mean one, where the trace begins again.
    mean_s = trace.span_s / (len(rows) - 1)
    scale = (1.0 / mean_s) / rate
    found: list[TraceRequest] = []
    at_s, place = 0.0, (seed - 1) * _SEED_STEP % len(rows)
    while at_s < duration_s:
        row = rows[place]
        found.append(replace(row, arrival_s=at_s))
        place = (place + 1) % len(rows)
        pause_s = rows[place].arrival_s - row.arrival_s if place else mean_s
        at_s += pause_s * scale
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A whole measurement."""

    engine: str
    model: ServedModel
    contenders: tuple[Contender, ...]
    load: Load
    rates: tuple[float, ...]
    tbt_ms: tuple[float, ...]
    seeds: tuple[int, ...]
    attainment_ratio: float
    drain_s: float
    tp_size: int
    extra: tuple[str, ...]
    profile: Path | None
    """Measured on this GPU, for our policies to predict with."""

    def runs(self) -> list[Run]:
        """Server by server; one of lower rates first, so that a first answer is there early."""
        servers = dict.fromkeys(one.arm.server for one in self.contenders)
        return [
            run
            for server in servers
            for seed in self.seeds
            for rate in self.rates
            for one in self.contenders
            if one.arm.server == server
            for run in Run.each(
                arm=one.arm,
                tbt_ms=self.tbt_ms,
                model=self.model.name,
                cell=Cell(workload=self.load.kind, rate=rate),
                seed=seed,
                tp_size=self.tp_size,
            )
        ]

    def name_of(self, arm: str) -> str | None:
        """The name as the user calls it; None for one that is not asked for."""
        return next((one.name for one in self.contenders if one.arm.name == arm), None)

    def fixed(self) -> dict[str, object]:
        """What must not change while results are added to a folder. Rates, seeds and engines may."""
        load = self.load
        return {
            "engine": self.engine,
            "model": str(self.model.folder) if self.engine == "sglang" else self.model.emulator_profile,
            "load": load.kind if load.trace is None else str(load.trace.path.resolve()),
            "requests": None if load.trace is None else len(load.trace.requests),
            "ttft": asdict(load.ttft),
            "duration_s": load.duration_s,
            "drain_s": self.drain_s,
            "tp_size": self.tp_size,
            "sglang_args": list(self.extra),
            "profile": None if self.profile is None else str(self.profile.resolve()),
        }


def claim(folder: Path, wanted: Wanted) -> None:
    """Make the folder, or see that what it holds may be added to.

    Raises: ConflictError for results of something else; OSError if it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, fixed = folder / "bench.json", wanted.fixed()
    if not path.exists():
        path.write_text(json.dumps(fixed, indent=1) + "\n")
        return
    try:
        found = json.loads(path.read_text())
    except ValueError:
        raise ConflictError(f"--out {folder}: its bench.json is damaged; name another folder") from None
    for name, value in fixed.items():
        if found.get(name) != value:
            text = f"it holds results with {name} {found.get(name)!r}, and now it is {value!r}"
            raise ConflictError(f"--out {folder}: {text}; name another folder")
