"""What the gateway costs: `make bench-gateway`.

One `pdmuxd serve` with its emulated engine runs; the same seeded open load goes to the engine's own port
and through the gateway, in alternating arms, from a client in a process of its own. The engine is slowed to
about 50 ms per decode step, so that 100 streams at a time make about 2,000 tokens/s. Targets: 0.95 of the
direct throughput, and p50 TTFT within 2 ms. Client, gateway and engine share this machine's cores, so that
nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from load_client import WARM_UP_S, Load
from rich.console import Console
from rich.table import Table

sys.path.insert(1, str(Path(__file__).parent / "front_end"))

from processes import cpu_s, served

TARGET_THROUGHPUT_RATIO = 0.95
TARGET_TTFT_MS = 2.0
CLIENT = Path(__file__).with_name("load_client.py")
SHIPPED_PROFILE = "h200-llama-8b.json"
NATURAL_STEP_S = 0.006
"""About what a decode step of 100 streams takes on that profile."""
POLICY = "muxwise"
"""One that does not change its mode with what it learns: both arms must meet the same engine."""


def slow_profile(folder: Path, step_s: float) -> Path:
    """The shipped profile with a host that takes most of a step's time."""
    shipped = resources.files("pdmuxd.engine.emulator") / "profiles" / SHIPPED_PROFILE
    profile = json.loads(shipped.read_text())
    profile["name"] = "bench"
    profile["overheads"]["host_step_s"] = step_s - NATURAL_STEP_S
    path = folder / "bench.json"
    path.write_text(json.dumps(profile))
    return path


@contextlib.contextmanager
def both_targets(profile: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Run `pdmuxd serve`; where the two arms send their requests."""
    with served([f"engine.profile={profile}", f"engine.policy={POLICY}"]) as one:
        pids = {"engine_pid": one.engine_pid, "daemon_pid": one.daemon_pid}
        yield {"direct": one.engine_target | pids, "gateway": one.target | pids}


def run_arm(target: Mapping[str, Any], load: Load) -> dict[str, Any]:
    """Run the client in a process of its own."""
    before = cpu_s(target["engine_pid"]), cpu_s(target["daemon_pid"])
    ended = subprocess.run(
        [sys.executable, str(CLIENT)],
        input=json.dumps({"target": target, "load": asdict(load)}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seen: dict[str, Any] = json.loads(ended.stdout)
    seen["engine_cpu_s"] = cpu_s(target["engine_pid"]) - before[0]
    seen["daemon_cpu_s"] = cpu_s(target["daemon_pid"]) - before[1]
    return seen


def summarise(arms: list[dict[str, Any]], load: Load) -> dict[str, Any]:
    """One arm's rounds as one."""
    ttft_ms = sorted(1000.0 * value for arm in arms for value in arm["ttft_s"])
    total_s = (WARM_UP_S + load.measured_s) * len(arms)
    return {
        "requests": len(ttft_ms),
        "failed": sum(arm["failed"] for arm in arms),
        "streams": statistics.mean(arm["streams"] for arm in arms),
        "tokens_per_s": statistics.mean(arm["tokens_per_s"] for arm in arms),
        "ttft_p50_ms": ttft_ms[len(ttft_ms) // 2],
        "ttft_p99_ms": ttft_ms[len(ttft_ms) * 99 // 100],
        **{
            f"{name}_cpu_ratio": sum(arm[f"{name}_cpu_s"] for arm in arms) / total_s
            for name in ("client", "daemon", "engine")
        },
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the table and the verdict."""
    direct, gateway = result["direct"], result["gateway"]
    table = Table(title="The gateway against the engine directly")
    for heading in ("", "direct", "gateway", "gateway costs", "target"):
        table.add_column(heading, justify="right" if heading else "left")
    ratio, p50_ms = result["throughput_ratio"], result["ttft_p50_difference_ms"]
    rows = (
        ("tokens/s", "tokens_per_s", ".0f", f"ratio {ratio:.3f}", f">= {TARGET_THROUGHPUT_RATIO}"),
        ("TTFT p50, ms", "ttft_p50_ms", ".2f", f"{p50_ms:+.2f} ms", f"<= {TARGET_TTFT_MS:g} ms"),
        ("TTFT p99, ms", "ttft_p99_ms", ".2f", f"{result['ttft_p99_difference_ms']:+.2f} ms", ""),
        ("streams at a time", "streams", ".0f", "", ""),
        ("requests", "requests", "d", "", ""),
        ("failed", "failed", "d", "", ""),
        ("cores: client", "client_cpu_ratio", ".2f", "", ""),
        ("cores: daemon", "daemon_cpu_ratio", ".2f", "", ""),
        ("cores: engine", "engine_cpu_ratio", ".2f", "", ""),
    )
    for name, key, form, cost, target in rows:
        table.add_row(name, format(direct[key], form), format(gateway[key], form), cost, target)
    console = Console()
    console.print(table)
    console.print("targets met" if result["met"] else "[bold]targets missed[/bold]")


def measure(load: Load, rounds: int) -> dict[str, Any]:
    """Run the arms by turns."""
    arms: dict[str, list[dict[str, Any]]] = {"direct": [], "gateway": []}
    with tempfile.TemporaryDirectory(prefix="pdmuxd-bench-") as name:
        folder = Path(name)
        with both_targets(slow_profile(folder, load.step_s)) as targets:
            for turn in range(rounds):
                this_load = Load(**asdict(load) | {"seed": load.seed + turn})
                for arm in ("direct", "gateway") if turn % 2 == 0 else ("gateway", "direct"):
                    Console(stderr=True).print(f"round {turn + 1} of {rounds}: {arm} ...")
                    arms[arm].append(run_arm(targets[arm], this_load))
    direct, gateway = (summarise(arms[arm], load) for arm in ("direct", "gateway"))
    ratio = gateway["tokens_per_s"] / direct["tokens_per_s"]
    p50_ms = gateway["ttft_p50_ms"] - direct["ttft_p50_ms"]
    return {
        "machine": {
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "load": asdict(load) | {"rounds": rounds, "step_s": load.step_s},
        "direct": direct,
        "gateway": gateway,
        "throughput_ratio": ratio,
        "ttft_p50_difference_ms": p50_ms,
        "ttft_p99_difference_ms": gateway["ttft_p99_ms"] - direct["ttft_p99_ms"],
        "met": ratio >= TARGET_THROUGHPUT_RATIO and p50_ms <= TARGET_TTFT_MS,
    }


def main() -> int:
    """Read the flags, measure, print; exit code 1 only if `--enforce` and a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--streams", type=int, default=100, help="at a time, on average (default: %(default)s)"
    )
    parser.add_argument("--tokens-per-s", type=float, default=2000.0, help="in all (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="per arm and round (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of both arms (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the load (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    parser.add_argument("--enforce", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    load = Load(streams=args.streams, tokens_per_s=args.tokens_per_s, measured_s=args.seconds, seed=args.seed)
    result = measure(load, args.rounds)
    show(result)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if args.enforce and not result["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
