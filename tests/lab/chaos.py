"""Chaos on loopback: a daemon under load, and a fault every so often, by a seed.

    python tests/lab chaos [--seconds 1800] [--every 20] [--seed 7] [--only kill_engine ...]

What must hold: each request ends with a whole answer or a clear error (or a broken connection,
if the daemon was killed meanwhile); no acknowledged edit is lost; requests are served again within 5 s of an
engine's death; the memory and descriptors of the daemon do not grow. Prints a table; exit code 1 if one does
not hold. Run it under `unshare --mount` as root, or the disk is not filled.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from chaos_faults.faults import FAULTS
from chaos_faults.load import DEADLINE_S, Load
from chaos_faults.site import Site

SERVED_AGAIN_S = 5.0
MEMORY_MIB = 20.0
WARM_S = 60.0
SMALL_DISK_MIB = 96


class Watch:
    """Memory and descriptors of each daemon, from a minute after its start."""

    def __init__(self, site):
        self._site = site
        self._lives = {}

    async def run(self):
        seen = {}
        while True:
            await asyncio.sleep(2.0)
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = self._site.pid
                began_s = seen.setdefault(pid, time.monotonic())
                memory_mib = self._site.memory_mib()
                if time.monotonic() - began_s >= WARM_S and memory_mib:  # none: it has just been killed
                    self._lives.setdefault(pid, []).append((memory_mib, self._site.descriptors()))

    def growth(self):
        """Of the life that grew most: (MiB, seconds observed); (0, 0) if none was long enough."""
        grown = [
            (life[-1][0] - life[0][0], 2.0 * len(life)) for life in self._lives.values() if len(life) > 5
        ]
        return max(grown, default=(0.0, 0.0))

    def peaks(self):
        """(MiB, descriptors)."""
        every = [each for life in self._lives.values() for each in life] or [(0.0, 0)]
        return max(each[0] for each in every), max(each[1] for each in every)


async def chaos(
    folder,
    *,
    seconds,
    every_s,
    seed,
    rate_per_s,
    only=(),
    most_faults=math.inf,
    served_again_s=SERVED_AGAIN_S,
    deadline_s=DEADLINE_S,
):
    """Do it for so many seconds or faults; a report as a dictionary, whose `violations` should be empty."""
    rng = random.Random(seed)
    site = await asyncio.to_thread(Site, folder)
    quiet_descriptors = site.descriptors()
    load = Load(site, rate_per_s=rate_per_s, seed=seed, deadline_s=deadline_s)
    watch = Watch(site)
    tasks = [asyncio.create_task(load.run()), asyncio.create_task(watch.run())]
    done, violations, again_s = collections.Counter(), load.violations, []
    names = list(only or FAULTS)
    end_s = time.monotonic() + seconds
    deck = []
    try:
        while time.monotonic() + every_s < end_s and done.total() < most_faults:
            due_s = time.monotonic() + every_s
            deck = deck or rng.sample(names, len(names))
            name = deck.pop()
            began_s = time.monotonic()
            try:
                said = await asyncio.to_thread(FAULTS[name], site, rng)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                violations.append(f"{time.strftime('%H:%M:%S')} {name} failed: {said}")
            done[name] += 1
            print(
                f"{time.strftime('%H:%M:%S')} {name} {said or ''} ({time.monotonic() - began_s:.1f} s)",
                flush=True,
            )
            if name == "kill_engine" and said is None:
                again_s.append(await _served_again(site, began_s, served_again_s))
                print(
                    f"         served again after {again_s[-1]:.1f} s, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                if again_s[-1] > served_again_s:
                    violations.append(f"served again only {again_s[-1]:.1f} s after the engine was killed")
            if (lost := await asyncio.to_thread(site.lost_edit)) is not None:
                violations.append(f"{time.strftime('%H:%M:%S')} an edit is lost after {name}: {lost}")
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    finally:
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        await load.drain()
    left = await asyncio.to_thread(_quiet, site)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    if left is not None:
        violations.append(left)
    if (open_now := await asyncio.to_thread(_descriptors, site, quiet_descriptors + 16)) is not None:
        violations.append(f"{open_now} descriptors are open at the end, {quiet_descriptors} at the start")
    grown_mib, observed_s = watch.growth()
    if grown_mib >= MEMORY_MIB:
        violations.append(f"a daemon grew by {grown_mib:.0f} MiB in {observed_s:.0f} s")
    code = await asyncio.to_thread(site.daemon.stop)
    return {
        "faults": dict(done),
        "outcomes": dict(load.outcomes.most_common()),
        "served_again_s": again_s,
        "grown_mib": grown_mib,
        "observed_s": observed_s,
        "peak": watch.peaks(),
        "violations": violations + ([] if code == 0 else [f"the daemon ended with {code}"]),
    }


async def _served_again(site, since_s, wanted_s):
    """Seconds until a request is answered, of those that somebody sends one after the other."""
    give_up_s = since_s + max(60.0, 2 * wanted_s)
    body = {"model": site.model, "prompt": "x", "max_tokens": 1}
    headers = {"Authorization": f"Bearer {site.key}"}
    async with httpx.AsyncClient(timeout=60.0, headers=headers, trust_env=False) as http:
        while time.monotonic() < give_up_s:
            with contextlib.suppress(httpx.HTTPError):
                answer = await http.post(f"{site.data_url}/v1/completions", json=body)
                if answer.status_code == 200:
                    return time.monotonic() - since_s
            await asyncio.sleep(0.05)
    return math.inf


def _quiet(site):
    """What is left in flight when nobody asks for anything any more; None if nothing is."""
    for _ in range(600):
        engine = site.engine()
        stats = engine.get("stats")
        if engine.get("state") == "serving" and stats and stats["running"] == stats["waiting"] == 0:
            return None
        time.sleep(0.1)
    return f"the engine is not idle at the end: {site.engine()}"


def _descriptors(site, most):
    """How many stay open in the daemon, if more than `most`; connections that were cut take a moment."""
    found = math.inf
    for _ in range(100):
        with contextlib.suppress(OSError):
            if (found := site.descriptors()) <= most:
                return None
        time.sleep(0.1)
    return found


def print_report(report):
    """For docs/measurements/reliability.md."""
    print("\n| outcome | requests |\n|---|---|")
    for outcome, count in report["outcomes"].items():
        print(f"| {outcome} | {count} |")
    print(f"\nfaults: {report['faults']}")
    again_s = sorted(report["served_again_s"])
    print(f"served again after an engine's death: {', '.join(f'{each:.1f}' for each in again_s)} s")
    print(f"most memory that a daemon grew by: {report['grown_mib']:.1f} MiB in {report['observed_s']:.0f} s")
    print(f"peaks: {report['peak'][0]:.0f} MiB, {report['peak'][1]} descriptors; load {os.getloadavg()}")
    for each in report["violations"]:
        print("VIOLATION:", each)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--every", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=FAULTS, default=())
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        state_dir = Path(name) / ".pdmuxd"
        state_dir.mkdir(mode=0o700)
        options = f"size={SMALL_DISK_MIB}m,mode=0700"
        if (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", state_dir], check=False
            ).returncode
            == 0
        ):
            stack.callback(subprocess.run, ["umount", "-l", state_dir], check=False)
        report = asyncio.run(
            chaos(
                Path(name),
                seconds=wanted.seconds,
                every_s=wanted.every,
                seed=wanted.seed,
                rate_per_s=wanted.rate,
                only=tuple(wanted.only),
            )
        )
        if report["violations"]:
            print((Path(name) / "daemon.log").read_text()[-20000:], file=sys.stderr)
    print_report(report)
    return 1 if report["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
