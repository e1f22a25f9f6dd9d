"""Turns the results of all runs into a sentence: does pdmuxd pay here?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdmuxd.daemon.bench.decide.wanted import Wanted
from pdmuxd.daemon.bench.load.score import summary
from pdmuxd.daemon.bench.results import Run, counted, read_runs

NOISE_RATIO = 0.05
"""Seeds differ by as much (one H200, Llama-8B, 2026-11-21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One engine at one rate against one TBT target, means over the seeds."""

    contender: str
    rate: float
    tbt_ms: float
    seeds: int
    good_ratio: float
    goodput_rps: float
    in_time_ratio: float
    """First tokens in time."""
    within_ratio: float
    """Gaps within the TBT target."""
    ttft_p50_ms: float
    ttft_p99_ms: float
    tbt_p50_ms: float
    tbt_p99_ms: float
    errors: int
    requests: int
    """Of the run with the fewest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The highest goodput of an engine, and the rate that it was found at."""

    contender: str
    goodput_rps: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found until now."""

    figures: tuple[Figures, ...]
    records: Mapping[tuple[str, float, float], Sequence[Mapping[str, Any]]]
    """By contender, rate and TBT target, the recorded runs."""
    done: int
    runs: int


def outcome_of(wanted: Wanted, results: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> Outcome:
    """The runs that are asked for, as far as they are there."""
    kept = {run.name: run for run in runs}
    by_key = {str(run.key): run for run in kept.values()}
    records: dict[tuple[str, float, float], list[Mapping[str, Any]]] = defaultdict(list)
    done = 0
    for result in counted([dict(one) for one in results]):
        run = by_key.get(str(result["key"]))
        if run is None or result.get("build") != run.build:
            continue
        done += 1
        name = wanted.name_of(run.arm.name)
        for tbt_ms in run.judged_ms:
            if name is not None:
                records[name, run.cell.rate, tbt_ms].append(result)
    order = [one.name for one in wanted.contenders]
    figures = sorted(
        (_figures(*cell, found) for cell, found in records.items()),
        key=lambda one: (one.tbt_ms, order.index(one.contender), one.rate),
    )
    return Outcome(figures=tuple(figures), records=dict(records), done=done, runs=len(runs))


def read_outcome(wanted: Wanted, path: Path) -> Outcome:
    """Read the outcome from the file of results."""
    return outcome_of(wanted, list(read_runs(path)), wanted.runs())


def _figures(name: str, rate: float, tbt_ms: float, found: Sequence[Mapping[str, Any]]) -> Figures:
    all_of = [summary(one, tbt_ms=tbt_ms) for one in found]

    def mean(key: str) -> float:
        values = [one[key] for one in all_of if one[key] is not None]
        return sum(values) / len(values) if values else 0.0

    return Figures(
        contender=name,
        rate=rate,
        tbt_ms=tbt_ms,
        seeds=len(found),
        good_ratio=mean("good_ratio"),
        goodput_rps=mean("goodput_rps"),
        in_time_ratio=mean("in_time_ratio"),
        within_ratio=mean("within_ratio"),
        ttft_p50_ms=mean("ttft_p50_ms"),
        ttft_p99_ms=mean("ttft_p99_ms"),
        tbt_p50_ms=mean("tbt_p50_ms"),
        tbt_p99_ms=mean("tbt_p99_ms"),
        errors=sum(one["errors"] for one in all_of),
        requests=min(one["requests"] for one in all_of),
    )


def best_of(figures: Sequence[Figures]) -> Best | None:
    """The most good requests a second, of whatever engine these are of."""
    top = max(figures, key=lambda one: one.goodput_rps, default=None)
    if top is None:
        return None
    return Best(contender=top.contender, goodput_rps=top.goodput_rps, rate=top.rate)


def verdict(wanted: Wanted, found: Outcome) -> str:
    """The first sentence of table and page."""
    where = "on this machine" if wanted.engine == "sglang" else f"on the emulated {wanted.model.name}"
    said = [_of_target(wanted, found, tbt_ms, where) for tbt_ms in wanted.tbt_ms]
    text = " ".join(said)
    if found.done < found.runs:
        return f"So far, with {found.done} of {found.runs} runs: {text}"
    return text


def _of_target(wanted: Wanted, found: Outcome, tbt_ms: float, where: str) -> str:
    at = f" at TBT {tbt_ms:g} ms" if len(wanted.tbt_ms) > 1 else ""
    names = {one.name: one.is_ours for one in wanted.contenders}
    of_target = [one for one in found.figures if one.tbt_ms == tbt_ms]
    ours = [one for one in of_target if names[one.contender]]
    theirs = [one for one in of_target if not names[one.contender]]
    us, them = best_of(ours), best_of(theirs)
    if us is None or them is None:
        missing = "pdmuxd" if us is None else "SGLang's own"
        return f"Not decided{at}: nothing of {missing} is measured yet."
    top = max(one.rate for one in of_target)
    rates = [one for one in of_target if one.rate == top]
    held = {one.contender for one in rates if one.good_ratio >= wanted.attainment_ratio}
    if us.contender in held and them.contender in held:
        return (
            f"Not decided {where}{at}: {us.contender} and {them.contender} both keep the targets at the "
            f"highest rate, {top:g} requests a second; measure higher --rates."
        )
    if max(us.goodput_rps, them.goodput_rps) <= 0.0:
        return f"Not decided {where}{at}: no request was good at any rate; measure lower --rates."
    lead = us.goodput_rps / them.goodput_rps - 1.0 if them.goodput_rps else float("inf")
    more = f"{lead:+.0%}" if lead < float("inf") else "SGLang has none"
    keeps = any(one.good_ratio >= wanted.attainment_ratio for one in of_target)
    none = "" if keeps else " No engine keeps its targets at any of these rates."
    figures = (
        f"{us.contender} serves at most {us.goodput_rps:.3g} good requests a second, the best of SGLang's "
        f"own, {them.contender}, {them.goodput_rps:.3g} ({more})"
    )
    if abs(lead) <= NOISE_RATIO:
        return f"pdmuxd makes no difference {where}{at}: {figures}.{none}"
    return f"pdmuxd {'pays' if lead > 0 else 'does not pay'} {where}{at}: {figures}.{none}"
