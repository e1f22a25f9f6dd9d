"""Requests at, inside and beyond the range of every field of every path, sent through the gateway.

    python tests/lab contract-fuzz [--cases 20000] [--seed 1] [--skip 0] [--at-once 8] [--limit-s 3600]
                                   [--python PYTHON]

On a daemon of its own, on loopback, with SGLang on the CPU; without PYTHON, which has SGLang (`make
install-sglang`), on the emulated engine. What must hold: the engine's pid is the same at the end, no answer
of 500 or more but 503, which is asked again, and every refusal names its field. A 503 of an engine that was
silent on busy cores is asked again until it is answered. Prints figures; exit code 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from contract_cases import Case, drawn
from daemon_process import Daemon
from sglang_processes import daemon_settings, environment

from gpu_servers.model_folder import write_model_folder, write_weights

SGLANG, EMULATED = (512, 131_072), (128_256, 131_072)
"""The vocabulary and the context of the tests' model, and of the emulator's."""
NOT_EMULATED = ("/tokenize", "/detokenize")
"""Paths that SGLang has and the emulated engine has not: 404."""
ASKED_AGAIN_S = 300.0
"""As long as an engine takes to begin anew: after that a 503 is a failure."""
SHOWN = 40


@dataclass
class Outcome:
    """What was answered."""

    missing: tuple[str, ...] = ()
    """Paths that this engine does not have."""
    statuses: Counter[int] = field(default_factory=Counter)
    again: int = 0
    """How often a 503 was asked again."""
    broken: list[str] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)
    """Refusals without a field, by what they say."""
    in_flight: dict[int, Case] = field(default_factory=dict)
    lost: dict[int, Case] = field(default_factory=dict)
    """What was in flight when an answer said that the engine ended."""


async def ask(client: httpx.AsyncClient, number: int, case: Case, outcome: Outcome) -> None:
    """Send one case, again as long as it is 503, and note what is wrong with the answer."""
    end_s = time.monotonic() + ASKED_AGAIN_S
    outcome.in_flight[number] = case
    try:
        while True:
            answer = await client.post(case.path, content=json.dumps(case.body))
            if answer.status_code != 503 or time.monotonic() > end_s:
                break
            outcome.again += 1
            await asyncio.sleep(1.0)
    except httpx.HTTPError as error:
        outcome.broken.append(f"{error!r}: {case}")
        return
    finally:
        del outcome.in_flight[number]
    note(case, answer, outcome)


def note(case: Case, answer: httpx.Response, outcome: Outcome) -> None:
    """Count an answer, and judge it."""
    outcome.statuses[answer.status_code] += 1
    if answer.status_code >= 500:
        outcome.broken.append(f"{answer.status_code} {answer.text[:300]}: {case}")
        if answer.status_code == 502:
            outcome.lost |= outcome.in_flight
        return
    if answer.status_code == 200:
        if not case.is_good:
            outcome.broken.append(f"200 to a value beyond its range: {case}")
        return
    if answer.status_code == 404 and case.path in outcome.missing:
        return
    error = answer.json().get("error") or {}
    if answer.status_code != 400 or (not case.is_good and not is_named(case, error)):
        outcome.broken.append(f"{answer.status_code} {answer.text[:300]}: {case}")
    elif not error.get("param"):
        outcome.unnamed[f"{case.path} {case.field}: {str(error.get('message'))[:160]}"] += 1


def is_named(case: Case, error: Mapping[str, object]) -> bool:
    """Whether a refusal names the field that is wrong, or another one that may be refused as well."""
    if case.field.rpartition(".")[2] in str(error):
        return True
    first = re.split(r"[.\[]", str(error.get("param")))[0]
    return case.is_open and first in case.body and first != "model"


async def run(
    daemon: Daemon,
    ranges: tuple[int, int],
    *,
    count: int,
    seed: int,
    skip: int = 0,
    at_once: int,
    limit_s: float,
    missing: tuple[str, ...] = (),
) -> Outcome:
    """All cases, so many at once, until the time is up. `ranges`: the model's vocabulary and context."""
    outcome, end_s = Outcome(missing), time.monotonic() + limit_s
    headers = {"Authorization": f"Bearer {daemon.key}", "Content-Type": "application/json"}
    vocab, context = ranges
    cases = drawn(daemon.model, vocab=vocab, context=context, count=count, seed=seed)
    left = islice(enumerate(cases), skip, None)

    async def work(client: httpx.AsyncClient) -> None:
        for number, case in left:
            if number and number % 1000 == 0:
                print(f"{number}: {dict(outcome.statuses)}, {len(outcome.broken)} broken", flush=True)
            if time.monotonic() > end_s or outcome.lost:
                return
            await ask(client, number, case, outcome)

    async with httpx.AsyncClient(
        base_url=daemon.data_url, headers=headers, timeout=300, trust_env=False
    ) as client:
        await asyncio.gather(*(work(client) for _ in range(at_once)))
    if (done := sum(outcome.statuses.values())) < count - skip and not outcome.broken:
        outcome.broken.append(f"only {done} of {count - skip} cases were answered in {limit_s:.0f} s")
    return outcome


def main() -> None:
    """Start a daemon, ask, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="go on behind so many cases of an earlier run")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=3600.0)
    parser.add_argument("--python", type=Path, help="a Python with SGLang; without one, the emulated engine")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, ranges, missing = Path(name), EMULATED, NOT_EMULATED
        settings, environ = ["log.level=warning"], {}
        if wanted.python is not None:
            ranges, missing = SGLANG, ()
            model = write_weights(write_model_folder("tiny", folder / "tiny", torch_dtype="float32"))
            settings += daemon_settings(wanted.python.absolute(), model)
            settings.append("engine.start_timeout_s=600")
            environ = environment()
        daemon = Daemon(folder, settings=settings, environ=environ, start_s=700)
        try:
            before, started_s = daemon.engine()["pid"], time.monotonic()
            outcome = asyncio.run(
                run(
                    daemon,
                    ranges,
                    count=wanted.cases,
                    seed=wanted.seed,
                    skip=wanted.skip,
                    at_once=wanted.at_once,
                    limit_s=wanted.limit_s,
                    missing=missing,
                )
            )
            took_s, after = time.monotonic() - started_s, daemon.engine()["pid"]
            if after != before:
                log = (folder / ".pdmuxd" / "engine.log").read_text(errors="replace")
                print("\n".join(log.splitlines()[-80:]))
        finally:
            daemon.stop()
    if after != before:
        outcome.broken.append(f"the engine was replaced; in flight: {list(outcome.lost.values())}")
    answered, asked = sum(outcome.statuses.values()), f"{wanted.cases} behind {wanted.skip}"
    print(f"{answered} of {asked} cases in {took_s:.0f} s, {wanted.at_once} at once, seed {wanted.seed}")
    print(f"statuses {dict(sorted(outcome.statuses.items()))}; 503 asked again {outcome.again} times")
    print(f"the engine's pid {before} -> {after}; load {os.getloadavg()[0]:.1f}")
    print(f"{sum(outcome.unnamed.values())} refusals name no field; {len(outcome.broken)} broken")
    for each, count in outcome.unnamed.most_common(SHOWN):
        print(f"  {count} x {each}")
    for each in outcome.broken[:SHOWN]:
        print(f"  {each}")
    sys.exit(bool(outcome.broken or outcome.unnamed))


if __name__ == "__main__":
    main()
