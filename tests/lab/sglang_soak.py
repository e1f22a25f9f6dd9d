"""SGLang on the CPU while prefills overtake each other, are aborted, and policies change, for ten minutes.

    python tests/lab sglang-soak [--seconds 600] [--seed 7] [--python PYTHON] [--keep FOLDER]

The load is that of `nested_prefills.py`, with a request that decodes beside each wave: prefills set aside
up to five deep, prompts in chunks that sit steps out, or relaxed requests that do, aborts at random moments,
another policy or target every few seconds. What must hold: every answer is, token for token, the one that was
given undisturbed, whole and not by layers (an aborted one its beginning); each minute, when all have ended,
nobody waits or runs and the KV pool is empty; each request has one record; no STALL_S without a token while
requests are open, but for what the scheduler waited for a core meanwhile. Where the time of a gap of more
than GAP_S went is said when it is over, and the scheduler's stacks are in the log. A gap of 8 s is a prompt
in slices: for each of them SGLang's attention on the CPU computes all tokens so far. Prints figures; exit
code 1 if one does not hold. PYTHON has SGLang (`make install-sglang`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import sglang_processes
from changing_policies import flush
from nested_prefills import LAYERS, Waves, ask_undisturbed, chunks_overtaken, depths, put_in_force, variables
from sglang_processes import Link, OurServer
from where_time_went import GapWatch, processes_of

from gpu_servers.model_folder import write_model_folder, write_weights

ROOT = Path(__file__).parents[2]
POLICIES = (
    *("auto:nofuse", "auto:nosplit", "auto", "auto:nofuse", "muxwise:preempt", "auto:nofuse", "auto:nosplit"),
    *("chunked:256", "auto:nofuse", "drift", "pla/auto", "auto:nonest", "muxwise", "duet:64"),
)
POLICY_S = (5.0, 15.0)
"""Between two changes of the policy."""
CHECK_S = 60.0
"""Between two looks whether all is given back."""
STALL_S = 30.0
GAP_S = 5.0
CHUNKED = ("auto:nosplit",)
"""Policies under which prompts in chunks are overtaken: their targets may be those of that load."""
CLASSES, CLASSES_RATIO = ("auto", "auto:nofuse", "auto:nosplit"), 0.6
"""Policies under which relaxed requests sit steps out, and how often two classes are in force then."""


class Soak:
    """One run against one server."""

    def __init__(self, server, link, waves, watch, *, seed):
        self._server, self._link, self.waves, self._watch = server, link, waves, watch
        self._rng = random.Random(seed)
        self.changes = self.checks = self._gaps_seen = 0
        self.policies = Counter()
        self.memory_mib = []
        self.broken = []

    async def run(self, seconds):
        """Waves and changes of the policy; everything is checked each minute, and at the end."""
        changing = asyncio.create_task(self._change())
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not changing.done():
            stop_s = time.monotonic() + min(CHECK_S, left_s)
            await self._send(stop_s)
            await self._check()
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        if not changing.cancelled():
            self.broken.append(f"a change of policy failed: {changing.exception()!r}")

    async def _send(self, stop_s):
        while time.monotonic() < stop_s:
            await self.waves.send()
            await self.waves.forget_prefixes()

    async def _change(self):
        for number in range(1_000_000):
            policy = POLICIES[number % len(POLICIES)]
            tbt_s = self._rng.choice((0.6, 1.0, 2.0))
            chunks = policy in CHUNKED and self._rng.random() < 0.5
            classes = not chunks and policy in CLASSES and self._rng.random() < CLASSES_RATIO
            await put_in_force(self._link, policy, tbt_s=tbt_s, chunks=chunks, classes=classes)
            self.changes += 1
            self.policies[policy] += 1
            await asyncio.sleep(self._rng.uniform(*POLICY_S))

    async def _check(self):
        await self._link.idle()
        if await asyncio.to_thread(flush, self._server) != 200:
            self.broken.append("the cache could not be flushed: something is in flight")
        stats = await self._link.told(lambda stats: not stats.cached_tokens)
        names = Counter(record.request_id for record in self._link.records)
        outcome, known = self.waves.outcome, len(self.broken)
        self.checks += 1
        self.memory_mib.append(memory_mib(self._server.process.pid))
        if stats.kv_used_tokens or stats.dropped_records or "leak" in self._server.log:
            self.broken.append(f"KV {stats.kv_used_tokens} used, {stats.dropped_records} records lost")
        if len(names) != outcome.asked or max(names.values()) > 1:
            without = [rid for rid in outcome.rids if rid not in names]
            twice = [rid for rid, count in names.items() if count > 1]
            self.broken.append(f"{outcome.asked} requests: without a record {without}, with several {twice}")
        if outcome.wrong:
            self.broken.append(f"{len(outcome.wrong)} wrong answers, the first {outcome.wrong[0]}")
        gaps, self._gaps_seen = self._watch.gaps[self._gaps_seen :], len(self._watch.gaps)
        for gap in gaps:
            if gap.seconds - gap.wait_s > STALL_S:
                self.broken.append(
                    f"{gap.seconds:.0f} s without a token, {gap.wait_s:.0f} of them the machine's"
                )
        print(
            f"check {self.checks}: {outcome.asked:,} requests, {outcome.aborted} aborted, {outcome.tokens:,} "
            f"tokens, longest gap {outcome.stall_s:.1f} s, {self.memory_mib[-1]:.0f} MiB; "
            f"{len(self.broken)} broken",
            flush=True,
        )
        for each in self.broken[known:]:
            print(f"  {each}", flush=True)


def memory_mib(leader):
    """Resident memory of a process and of those that it has begun."""
    total = 0.0
    for pid in processes_of(leader):
        with contextlib.suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    return total


def gap_since_s(outcome):
    """Since when no token came, if a request is open."""
    return outcome.last_s if outcome.open else None


async def against(server, options):
    """The soak, and its figures."""
    async with Link(server.link_address) as link:
        undisturbed = await ask_undisturbed(server.base_url, link, decoding=True)
        print("all prompts were answered undisturbed", flush=True)
        await link.idle()
        link.records.clear()
        async with Waves(server.base_url, undisturbed, seed=options.seed) as waves:
            since_s = partial(gap_since_s, waves.outcome)
            with GapWatch(server.process.pid, link.hello.pid, since_s, over_s=GAP_S) as watch:
                soak = Soak(server, link, waves, watch, seed=options.seed)
                await soak.run(options.seconds)
                whole = watch.since_start()
    outcome, deep = waves.outcome, depths(server.log)
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{options.seconds:.0f} s, seed {options.seed}; load {load} at the end")
    print(
        f"the scheduler's thread ran {whole.run_s:.0f} s, waited for a core {whole.wait_s:.0f} s and slept "
        f"{whole.slept_s:.0f} s; steps that stalled: {sum(step.stall_s > 0 for step in link.steps)} of "
        f"{len(link.steps)}"
    )
    print(f"gaps of more than {GAP_S:.0f} s: {len(watch.gaps)}")
    for gap in sorted(watch.gaps, key=lambda gap: -gap.seconds)[:10]:
        print(f"  {gap.seconds:.1f} s: ran {gap.run_s:.1f}, waited {gap.wait_s:.1f}, slept {gap.slept_s:.1f}")
    print(f"requests: {outcome.asked}, whole {outcome.whole}, aborted {outcome.aborted}")
    print(f"answers that are not those given undisturbed: {len(outcome.wrong)} ({outcome.tokens} tokens)")
    print(f"prefills set aside: {deep.total()}, by depth {dict(sorted(deep.items()))}")
    print(f"steps that a prompt in chunks sat out: {chunks_overtaken(server.log)}")
    sat_out = sum(step.sitting_out > 0 for step in link.steps)
    held = sum(step.sitting_out > 0 and step.prefill_new_tokens > 0 for step in link.steps)
    print(f"steps that relaxed requests sat out: {sat_out}, with prompt tokens: {held}")
    print(f"policies put in force: {soak.changes} ({dict(soak.policies)})")
    print(
        f"checks that all is given back: {soak.checks}; longest time without a token: {outcome.stall_s:.1f} s"
    )
    print(f"resident memory at the checks, MiB: {[round(each) for each in soak.memory_mib]}")
    for each in soak.broken:
        print(f"BROKEN: {each}")
    return not soak.broken


def main():
    """Start a server, and stop it."""
    sglang_processes.START_S = 900.0  # others may use the machine
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-sglang" / "bin" / "python")
    parser.add_argument(
        "--keep", type=Path, help="a new folder for the server's log, in which the stacks are"
    )
    options = parser.parse_args()
    if options.keep is not None and options.keep.exists():
        parser.error(f"--keep {options.keep}: it is there; allowed is a folder that is not")
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)  # the temporary one is there
        shape = write_model_folder("tiny", folder / "model", torch_dtype="float32", num_hidden_layers=LAYERS)
        model = write_weights(shape)
        print("SGLang starts", flush=True)
        with OurServer(
            options.python, model, folder, policy="duet:64", variables=variables(folder)
        ) as server:
            holds = asyncio.run(against(server, options))
            if not holds:
                print(server.log[-3000:])
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
