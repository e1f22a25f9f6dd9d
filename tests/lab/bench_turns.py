"""Time what a turn of the SGLang engine's loop costs the host, on a stand-in scheduler: `make bench-turns`.

The loop, the policy, the ledger and the link are the real ones; the scheduler only keeps its queues, and its
part of a turn is left out as on a GPU (`tests/lab/in_sglang/probe_turns.py`). The load is the same every
time: 16 requests wait for one of 64 to end; fused steps let in a few more. The target is CPU time of the
thread: 100 microseconds median, 300 p99.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

import zmq
from engine_rig import Rig, make_engine_info, settings, tenant_slo
from fake_scheduler import FakePort, FakeRequest

from gpu_plans import micro_table
from in_sglang.probe_turns import TurnTimes
from pdmuxd.daemon.bench.servers.predicting import predictors
from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, EngineLimits
from pdmuxd.engine.emulator.shapes import LLAMA_8B
from pdmuxd.engine.link.socket import EngineEnd

PROFILE = Path(__file__).parents[2] / "docs" / "measurements" / "h200" / "llama-8b.profile.json.gz"
TENANTS = 8
STEP_S = 0.012
OUTPUTS = 200
"""Tokens of an answer, on average."""
SWEEP = bytearray(4 * 2**20)
"""Read between two turns of `--cold`, as SGLang's own work leaves little of ours in the processor's caches.
What others do with the memory then shows too: the same turns take two to four times as long."""
FILL = 8
"""Turns for each of the batch before anything is timed."""


class QuietPort(FakePort):
    """Sums cost nothing, as the sums over a thousand contexts would be the stand-in's time."""

    layers = 32
    kv_capacity_tokens = 900_000
    kv_free_tokens = 700_000

    def decode_shape(self) -> DecodeShape:
        """As if every context were as long."""
        bs = len(self.running)
        return DecodeShape(bs=bs, reused_tokens=1500 * bs, max_context_tokens=1500) if bs else NO_DECODE


class Load:
    """Keeps so many requests waiting; lengths and tenants go round."""

    def __init__(self, rig: Rig, waiting: int) -> None:
        self._rig = rig
        self._waiting = waiting
        self._made = 0

    def top_up(self) -> None:
        """One request at most, as requests come one by one."""
        if len(self._rig.port.waiting) < self._waiting:
            i = self._made = self._made + 1
            tokens, outputs = 200 + 370 * (i * 7 % 11), OUTPUTS + i * 37 % 100 - 50
            self._rig.port.waiting.append(FakeRequest.make(f"r{i}", tokens, outputs, f"t{i % TENANTS}"))


def measure(
    policy: str, *, running: int, waiting: int, turns: int, cold: bool, address: str
) -> dict[str, Any]:
    """The times of so many turns behind a start that fills the batch."""
    engine_info = make_engine_info(model=LLAMA_8B, limits=EngineLimits(max_decode_bs=running))
    context, link = zmq.Context(), EngineEnd(f"ipc://{address}")
    daemon = context.socket(zmq.ROUTER)
    daemon.bind(f"ipc://{address}")
    told: list[dict[str, Any]] = []
    rig = Rig(policy, engine_info=engine_info, link=link, port=QuietPort)
    rig.loop.policy_runtime.apply(
        settings(
            1,
            policy,
            tenants=tuple(tenant_slo(f"t{i}", ttft_fixed_s=30.0) for i in range(TENANTS)),
            predictors=predictors({"llama-8b": PROFILE}, "llama-8b"),
        ),
        rig.loop.ledger,
    )
    load = Load(rig, waiting)
    for _ in range(FILL * running):
        _turn(rig, load, daemon)
    times = _timed(rig, told.append)
    for _ in range(turns):
        if cold:
            SWEEP.count(b"ab")
        _turn(rig, load, daemon)
    times.tell()
    link.close()
    context.destroy(linger=0)
    cell = f"{len(rig.port.running)} decode, {len(rig.port.waiting)} wait"
    return told[0] | {"policy": policy, "cell": cell}


def _timed(rig: Rig, write: Callable[[dict[str, Any]], None]) -> TurnTimes:
    loop = rig.loop
    times = TurnTimes(
        port=rig.port,
        streams=rig.device,
        reporter=loop._reporter,
        policy_runtime=loop.policy_runtime,
        write=write,
    )
    times.itemise(loop)
    loop.__class__ = type("Timed", (type(loop),), {})  # the next policy's loop has timers of its own
    times.attach(type(loop))
    return times


def _turn(rig: Rig, load: Load, daemon: zmq.Socket[bytes]) -> None:
    """What was launched in the turn before is done by now."""
    load.top_up()
    rig.device.finish_prefill()
    rig.turn(after_s=STEP_S)
    while daemon.poll(0):
        daemon.recv_multipart()
    rig.port.log.clear()
    rig.port.turns.clear()


def main() -> int:
    """Print a row for each policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policies", type=lambda text: text.split(","), default=["auto", "muxwise"])
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5000)
    parser.add_argument(
        "--cold", action="store_true", help="displace the processor's caches between two turns"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [
            measure(
                policy,
                running=options.running,
                waiting=options.waiting,
                turns=options.turns,
                cold=options.cold,
                address=f"{folder}/{i}",
            )
            for i, policy in enumerate(options.policies)
        ]
    print("\n".join(micro_table.lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
