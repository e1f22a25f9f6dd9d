"""Measure one model on one GPU: a profile within a budget, then shapes that the profile has not seen.

    PYTHONPATH=SITE python3 tests/bench/gpu/measure.py --model llama-8b --budget-s 240 --check-s 60 --out DIR

writes MODEL.profile.json (for `pdmuxd profile import`), MODEL.predictors.json (for `run.py --predictors`),
and MODEL.check.json (the unseen samples) to DIR, and prints the errors on both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

import msgspec
import numpy as np
from arms import Arm
from model_folder import SHAPES, write_model_folder
from server import free_port, running

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.link.measuring import Measure, Measured
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.link.predictors import contention_guard, latency_model
from pdmuxd.engine.link.socket import DaemonEnd
from pdmuxd.engine.profiling import candidates
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.campaign import Campaign
from pdmuxd.engine.profiling.document import MeasuredProfile, to_json
from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.target import Target

_ANSWER_S = 60.0
_CHECK_LONGEST_S = 0.6
_WARM_UP_TOKENS = 16384


class Asker:
    """One question at a time to one engine."""

    def __init__(self, end: DaemonEnd) -> None:
        self._end = end
        self._asked = 0
        self.failed = 0

    async def hello(self) -> Hello:
        """Wait for the engine's introduction."""
        while True:
            message = await asyncio.wait_for(self._end.receive(), _ANSWER_S)
            if isinstance(message, Hello):
                return message

    async def ask(self, point: Point, repeats: int) -> Sample | None:
        """The sample, or None if the engine could not."""
        self._asked += 1
        await self._end.send(point.to_measure(self._asked, repeats))
        while True:
            message = await asyncio.wait_for(self._end.receive(), _ANSWER_S)
            if isinstance(message, Measured) and message.point_id == self._asked:
                break
        try:
            return Sample.of(point, message)
        except ProfileError as error:
            self.failed += 1
            print(f"  {point.mode} {point.prefill_sms},{point.decode_sms}: {error}", flush=True)
            return None

    async def warm_up(self, target: Target) -> None:
        """The largest prefill once on each size: each stream takes its memory now."""
        tokens = min(_WARM_UP_TOKENS, target.max_new_tokens)
        for sms in target.prefill_sizes:
            self._asked += 1
            await self._end.send(
                Measure(
                    point_id=self._asked,
                    mode="prefill",
                    prefill_sms=sms,
                    decode_sms=0,
                    prefill=((tokens, 0),),
                    decode=(),
                    repeats=0,
                )
            )
            while True:
                message = await asyncio.wait_for(self._end.receive(), _ANSWER_S)
                if isinstance(message, Measured) and message.point_id == self._asked:
                    break


async def profile_it(
    asker: Asker, target: Target, budget_s: float, *, warm_up: bool
) -> tuple[list[Sample], float]:
    """Run a campaign; its samples, and how long it took."""
    if warm_up:
        await asker.warm_up(target)
    began_s = time.monotonic()
    campaign = Campaign(target, budget_s=budget_s)
    printed_s = began_s
    while (step := campaign.next(time.monotonic() - began_s)) is not None:
        point_s = time.monotonic()
        sample = await asker.ask(step.point, step.repeats)
        if sample is not None and (sample.prefill_s is not None or sample.decode_s is not None):
            if step.point.mode == "beside" and sample.decode_s is None:
                continue
            campaign.add(sample, time.monotonic() - point_s)
        if time.monotonic() - printed_s > 20.0:
            printed_s = time.monotonic()
            progress = campaign.progress(printed_s - began_s)
            print(f"  {progress.measured} points, {progress.left_s:.0f} s left, {progress.what}", flush=True)
    return campaign.samples, time.monotonic() - began_s


def unseen(target: Target, seen: set[Point], seed: int) -> Iterator[Point]:
    """Shapes at random: solo ones of odd sizes, pairs from the guard's pool, in turn."""
    chance = random.Random(seed)
    pairs = {
        split: [p for p in candidates.beside_points(target, split, _CHECK_LONGEST_S) if p not in seen]
        for split in target.splits
    }
    while True:
        sms = chance.choice(target.prefill_sizes)
        new = int(2 ** chance.uniform(6, 14))
        reused = chance.choice((0, 0, int(2 ** chance.uniform(8, 15))))
        yield Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
        sms = chance.choice(target.decode_sizes)
        bs = chance.randint(1, min(128, target.hello.max_decode_bs))
        contexts = tuple(int(2 ** chance.uniform(6, 13)) for _ in range(bs))
        yield Point(mode="decode", prefill_sms=0, decode_sms=sms, decode=contexts)
        for pool in pairs.values():
            if pool:
                yield pool.pop(chance.randrange(len(pool)))


async def check_it(asker: Asker, target: Target, seen: set[Point], budget_s: float) -> list[Sample]:
    """Measure unseen shapes until the time is over."""
    end_s = time.monotonic() + budget_s
    samples: list[Sample] = []
    for point in unseen(target, seen, seed=7):
        if time.monotonic() > end_s:
            break
        if point in seen or point.kv_tokens > target.kv_tokens:
            continue
        if point.mode != "beside" and candidates.cost_s(target, point) > _CHECK_LONGEST_S:
            continue
        sample = await asker.ask(point, 1 if point.mode == "beside" else 3)
        if sample is not None and (sample.decode_s is not None or point.mode != "beside"):
            samples.append(sample)
    return samples


def report(profile: MeasuredProfile, checks: list[Sample], target: Target) -> None:
    """Print the table of errors."""
    print(f"profile: {len(profile.samples)} samples in {profile.provenance.took_s:.0f} s")
    for fit in profile.fits:
        e = fit.errors
        print(
            f"  {fit.predictor} {fit.sms}: {fit.samples} samples, {fit.outliers} outliers, "
            f"held-out p50 {e.p50:.1%} p90 {e.p90:.1%} max {e.max:.1%}"
        )
    print("  left out:", "; ".join(profile.left_out) or "nothing", "; guard:", profile.guard)
    predictors = profile.predictors(1)
    model = latency_model(predictors, model=target.model, device=target.device, overheads=target.overheads)
    guard = contention_guard(predictors)
    errors: dict[str, list[float]] = {}
    ratios: list[float] = []
    over: list[float] = []
    for sample in checks:
        point = sample.point
        if point.mode == "beside":
            solo_s = model.decode_s(point.decode_shape, point.decode_sms)
            slowdown = (sample.decode_high_s or sample.seconds) / solo_s
            bound = guard.ratio(point.decode_sms, point.prefill_shape, point.decode_shape)
            ratios.append(slowdown)
            over.append(bound / max(1.0, slowdown))
        else:
            predicted = (
                model.prefill_s(point.prefill_shape, point.prefill_sms)
                if point.mode == "prefill"
                else model.decode_s(point.decode_shape, point.decode_sms)
            )
            error = abs(predicted / sample.seconds - 1.0)
            for name in (point.mode, f"{point.mode} {sample.sms}"):
                errors.setdefault(name, []).append(error)
    for name, values in sorted(errors.items()):
        p50, p90 = np.percentile(values, (50, 90))
        print(f"  unseen {name}: {len(values)} shapes, p50 {p50:.1%} p90 {p90:.1%} max {max(values):.1%}")
    if ratios:
        cuts = np.percentile(ratios, (10, 50, 90, 99))
        exceeded = sum(ratio < 1.0 for ratio in over) / len(over)
        print(
            f"  unseen pairs: {len(ratios)}, slowdown p10 {cuts[0]:.2f} p50 {cuts[1]:.2f} p90 {cuts[2]:.2f} "
            f"p99 {cuts[3]:.2f}; above the guard {exceeded:.1%}, mean bound / slowdown {np.mean(over):.2f}"
        )


async def main(options: argparse.Namespace) -> None:
    """Start the engine, measure, write, print."""
    options.out.mkdir(parents=True, exist_ok=True)
    arm = Arm(name=options.arm)
    model = write_model_folder(options.model, options.work / options.model)
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm"))
        address = f"ipc://{folder}/engine"
        end = DaemonEnd(address)
        stack.callback(end.close)
        port = free_port()
        command = arm.command(
            model=model, port=port, link=address, tp_size=1, cpu=options.cpu, extra=options.extra
        )
        await stack.enter_async_context(
            running(
                arm,
                command=command,
                environment=arm.environment(cpu=options.cpu),
                port=port,
                log=options.out / f"{options.model}-measure.log",
                start_s=options.start_s,
            )
        )
        asker = Asker(end)
        target = Target.of(await asker.hello())
        samples, took_s = await profile_it(asker, target, options.budget_s, warm_up=not options.cpu)
        raw = options.out / f"{options.model}.samples.json"
        raw.write_bytes(msgspec.json.encode([target.hello, samples]))
        checks = await check_it(asker, target, {sample.point for sample in samples}, options.check_s)
        (options.out / f"{options.model}.check.json").write_bytes(msgspec.json.encode(checks))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    profile = assemble(options.model, target, samples, measured_at=now, took_s=took_s, interrupted=False)
    (options.out / f"{options.model}.profile.json").write_bytes(to_json(profile))
    (options.out / f"{options.model}.predictors.json").write_bytes(msgspec.json.encode(profile.predictors(1)))
    report(profile, checks, target)
    print(json.dumps({"failed_points": asker.failed}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", required=True, choices=sorted(SHAPES))
    parser.add_argument("--arm", default="ours:auto", help="or emulator:auto, to try the script")
    parser.add_argument("--budget-s", type=float, default=240.0)
    parser.add_argument("--check-s", type=float, default=60.0)
    parser.add_argument("--start-s", type=float, default=240.0)
    parser.add_argument("--cpu", action="store_true", help="SGLang's CPU path, to try the script")
    parser.add_argument("--extra", type=str.split, default=[], help="more flags for the SGLang server")
    parser.add_argument("--out", type=Path, default=Path(".gpu/profile"))
    parser.add_argument("--work", type=Path, default=Path(".gpu/models"))
    asyncio.run(main(parser.parse_args()))
