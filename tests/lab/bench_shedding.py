"""What refusing late requests saves: a whole daemon on the emulated GPU, under twice the load that it holds.

    python tests/lab bench-shedding [--rate 8] [--seconds 40]

The same arrivals once with `late_action: serve`, once with `refuse`. Prints for each: first tokens in time,
late, refused and how soon, and the prompt tokens that were prefilled for answers that came too late.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from daemon_process import Daemon

PROMPT_TOKENS, OUTPUT_TOKENS = 8000, 16
TARGETS = {"ttft_fixed_ms": 1000, "ttft_per_1k_new_tokens_ms": 250, "tbt_ms": 50, "attainment_ratio": 0.99}
TARGET_S = 1.0 + 0.25 * PROMPT_TOKENS / 1000


@dataclass(slots=True)
class Outcome:
    """Of one request: seconds to its first token, or to its refusal."""

    status: int
    seconds: float
    code: str = ""


async def send(session: aiohttp.ClientSession, daemon: Daemon, at_s: float, number: int) -> Outcome:
    """One request at its time; its prompt is like no other's, so that no cache helps."""
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
    prompt = f"{number} " + "".join(f"w{number * 7919 + i:x} " for i in range(PROMPT_TOKENS // 2))
    body = {
        "model": daemon.model,
        "prompt": prompt[: 4 * PROMPT_TOKENS],
        "max_tokens": OUTPUT_TOKENS,
        "stream": True,
        "ignore_eos": True,
    }
    begun_s = time.monotonic()
    async with session.post("/v1/completions", json=body) as response:
        first = await response.content.readany()
        seconds = time.monotonic() - begun_s
        code = "" if response.status == 200 else code_of(first)
        if b'"error"' in first[:20]:
            code = code or "in the stream"
        async for _ in response.content.iter_any():
            pass
        return Outcome(response.status, seconds, code)


def code_of(body: bytes) -> str:
    """The code of an error."""
    return body.partition(b'"code":"')[2].partition(b'"')[0].decode()


async def run(late_action: str, rate: float, seconds: float) -> None:
    """One run, and its line."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = await asyncio.to_thread(Daemon, Path(folder), settings=["engine.kind=emulator"])
        try:
            daemon.admin("PUT", "/api/v1/tenants/default/slo?force=true", json=TARGETS)
            daemon.admin("PATCH", "/api/v1/tenants/default", json={"late_action": late_action})
            chance, at_s, arrivals = random.Random(1), time.monotonic() + 1.0, []
            end_s = at_s + seconds
            while at_s < end_s:
                arrivals.append(at_s)
                at_s += chance.expovariate(rate)
            headers = {"Authorization": f"Bearer {daemon.key}"}
            async with aiohttp.ClientSession(
                base_url=daemon.data_url,
                headers=headers,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=300),
            ) as session:
                outcomes = await asyncio.gather(
                    *(send(session, daemon, at, number) for number, at in enumerate(arrivals))
                )
        finally:
            await asyncio.to_thread(daemon.stop)
    served = [one for one in outcomes if one.status == 200 and not one.code]
    late = [one.seconds for one in served if one.seconds > TARGET_S]
    refused = [one.seconds for one in outcomes if one.status != 200 or one.code]
    shown = f"{late_action:6} {len(outcomes)} requests: {len(served) - len(late)} in time, {len(late)} late"
    if late:
        shown += f" (median {statistics.median(late):.1f} s, {len(late) * PROMPT_TOKENS:,} prompt tokens)"
    if refused:
        codes = {one.code for one in outcomes if one.code}
        shown += (
            f", {len(refused)} refused after {statistics.median(refused) * 1000:.0f} ms (median; {codes})"
        )
    print(shown, flush=True)


def main() -> None:
    """See the top."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    for late_action in ("serve", "refuse"):
        asyncio.run(run(late_action, options.rate, options.seconds))


if __name__ == "__main__":
    main()
