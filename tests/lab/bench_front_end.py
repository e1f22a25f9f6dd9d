"""What a token costs behind the scheduler, per process: `make bench-front-end`.

SGLang's own HTTP, tokenizer and detokenizer processes run behind a scheduler that computes nothing
(`front_end/fake_sglang.py`), so that the model's cost is out of the way. Arms: SGLang by itself, SGLang with
several tokenizer workers, and the gateway in front of it, whose tokens come through SGLang's HTTP server, or
straight from the scheduler (`engine.token_path`). Each stream gets a token every 50 ms. Needs SGLang's
environment (`make install-sglang`), no GPU. All processes share the machine's cores: nothing else should run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gpu_servers.model_folder import write_model_folder
from pdmuxd.daemon.process.ports import free_port
from pdmuxd.engine.link.garbage import GarbageReport, read_reports
from pdmuxd.engine.link.token_frames import frames_path
from pdmuxd.engine.sglang.launch.checks import PLUGIN

sys.path.insert(1, str(Path(__file__).parent / "front_end"))
sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

from lone_gateway import KEY as GATEWAY_KEY
from processes import cpu_s
from stream_client import StreamLoad

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "front_end"
STUB = Path(__file__).parent / "in_sglang" / "cpu"
ENGINE_KEY = "engine-key"
MODEL = "tiny"
STEP_S = 0.05
VOCABULARY = 8000
START_S = 600.0
STREAMS = (100, 500, 1000)
PYTHONS_THRESHOLDS = (700, 10, 10)
"""Of Python's collector by itself, up to 3.12."""
ROLES = ("gateway", "http", "detokenizer", "scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to serve."""

    name: str
    flags: tuple[str, ...] = ()
    has_gateway: bool = False
    is_direct: bool = False
    is_held: bool = True
    """With the plugin's hold on the garbage collector; else it is SGLang's."""


ARMS = {
    arm.name: arm
    for arm in (
        Arm(name="sglang", is_held=False),
        Arm(name="held"),
        # With a key SGLang refuses several workers: what this arm gains cannot be had as it is.
        Arm(name="workers", flags=("--tokenizer-worker-num", "2"), is_held=False),
        Arm(name="http", has_gateway=True),
        Arm(name="direct", has_gateway=True, is_direct=True),
        Arm(name="http-unheld", has_gateway=True, is_held=False),
        Arm(name="direct-unheld", has_gateway=True, is_direct=True, is_held=False),
    )
}


def model_folder(folder: Path) -> Path:
    """A model's folder without weights, whose tokenizer has learned words from these documents."""
    made = write_model_folder("tiny", folder, vocab_size=VOCABULARY)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sorted((ROOT / "docs").glob("*.md"))], trainer)
    tokenizer.save(str(made / "tokenizer.json"))
    return made


@contextlib.contextmanager
def sglang(python: Path, model: Path, arm: Arm, folder: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """SGLang with the stand-in; its port, and its processes by role."""
    port = free_port()
    keys = () if "--tokenizer-worker-num" in arm.flags else ("--api-key", ENGINE_KEY)
    command = [str(python), "-P", str(FOLDER / "fake_sglang.py"), "--model-path", str(model)]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    command += ["--attention-backend", "torch_native", "--log-level", "warning", *keys, *arm.flags]
    if not arm.is_held:
        command += ["--gc-threshold", *map(str, PYTHONS_THRESHOLDS)]
    own = {
        "FAKE_STEP_S": str(STEP_S),
        "FAKE_COUNTS": str(folder / f"{arm.name}.counts"),
        "FAKE_LINK": _link(folder) if arm.is_direct else "",
        "SGLANG_PLUGINS": PLUGIN,
        # Else SGLang's own; the holder counts collections in any case.
        "PDMUXD_POLICY": "auto",
        "PDMUXD_LINK": _link(folder),
        "PYTHONPATH": f"{ROOT / '.build/src'}:{STUB}",
    }
    log_path = folder / f"{arm.name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, env=os.environ | own, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _until_healthy(process, port, log_path)
        yield port, _roles(process.pid)
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def _link(folder: Path) -> str:
    return f"ipc://{folder}/engine"


def _until_healthy(process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    sys.exit(f"SGLang did not start:\n{log_path.read_text(errors='replace')[-3000:]}")


def _roles(pid: int) -> dict[str, int]:
    """SGLang names its processes."""
    found = {"http": pid}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.getpgid(int(folder.name)) != pid:
                continue
            title = (folder / "cmdline").read_bytes()
            for role in ("scheduler", "detokenizer"):
                if f"sglang::{role}".encode() in title:
                    found[role] = int(folder.name)
    return found


def _group_cpu_s(leader: int, roles: Mapping[str, int]) -> dict[str, float]:
    """Processor time per role; workers that are neither scheduler nor detokenizer count as HTTP's."""
    used: dict[str, float] = {}
    by_pid = {pid: role for role, pid in roles.items()}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        pid = int(folder.name)
        with contextlib.suppress(OSError):
            if pid in by_pid or os.getpgid(pid) == leader:
                role = by_pid.get(pid, "http")
                used[role] = used.get(role, 0.0) + cpu_s(pid)
    return used


@contextlib.contextmanager
def gateway(port: int, *arguments: str) -> Iterator[tuple[int, int]]:
    """The gateway in front of it: its port and process."""
    command = [
        sys.executable,
        str(FOLDER / "gateway_alone.py"),
        f"http://127.0.0.1:{port}",
        ENGINE_KEY,
        MODEL,
    ]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rpartition(":")[2]), process.pid
        finally:
            process.terminate()
            process.communicate()


def made(path: Path) -> tuple[int, int, float]:
    """Steps and tokens of the stand-in so far, and the seconds of its thread that handing them out took."""
    _, steps, tokens, cost_s = json.loads(path.read_text().rsplit("\n", 2)[-2])
    return steps, tokens, cost_s


def run_client(target: Mapping[str, Any], load: StreamLoad, mark: Callable[[], None]) -> dict[str, Any]:
    """What the client saw; `mark` is called when it begins and when it ends to count."""
    client = subprocess.Popen(
        [sys.executable, str(FOLDER / "stream_client.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(json.dumps({"target": target, "load": asdict(load)}))
    client.stdin.close()
    assert client.stdout.readline() == "measuring\n"
    mark()
    assert client.stdout.readline() == "measured\n"
    mark()
    seen: dict[str, Any] = json.loads(client.stdout.readline())
    client.wait()
    return seen


def run_load(
    target: Mapping[str, Any], load: StreamLoad, roles: Mapping[str, int], counts: Path, link: str
) -> dict[str, Any]:
    """One load: what the client saw, and microseconds of CPU per token and process."""
    marks: list[tuple[dict[str, float], tuple[int, int, float]]] = []
    reports: list[dict[str, GarbageReport]] = []

    def mark() -> None:
        marks.append((_group_cpu_s(roles["http"], roles), made(counts)))
        reports.append({report.process: report for report in read_reports(link)})

    seen = run_client(target, load, mark)
    if seen["failed"] and not seen["events_per_s"]:
        sys.exit(f"{seen['failed']} requests failed: {seen['failure']}")
    (before, made_before), (after, made_after) = marks
    # What the scheduler made, not what arrived as an event of its own: who falls behind merges events.
    steps, tokens, cost_s = (after - before for before, after in zip(made_before, made_after, strict=True))
    seen["us_per_token"] = {role: 1e6 * (after[role] - before[role]) / tokens for role in roles}
    seen["us_per_token"]["client"] = 1e6 * seen.pop("client_cpu_s") / tokens
    seen["tokens_per_s"] = tokens / load.measured_s
    seen["us_per_step"] = 1e6 * cost_s / steps
    seen["collections"] = _collections(*reports)
    seen["rss_mib"] = {role: psutil.Process(pid).memory_info().rss / 2**20 for role, pid in roles.items()}
    return seen


def _collections(
    before: Mapping[str, GarbageReport], after: Mapping[str, GarbageReport]
) -> dict[str, list[dict[str, float]]]:
    """By process and generation, the youngest first: how many, their time, what they found."""
    return {
        process: [
            {
                "count": end.count - begin.count,
                "total_ms": 1e3 * (end.total_s - begin.total_s),
                "cpu_ms": 1e3 * (end.cpu_s - begin.cpu_s),
                "longest_ms": 1e3 * end.longest_s,
                "found": end.found - begin.found,
            }
            for begin, end in zip(before[process].generations, after[process].generations, strict=True)
        ]
        for process in before.keys() & after.keys()
    }


def measure(args: argparse.Namespace, model: Path, folder: Path) -> list[dict[str, Any]]:
    """All arms with all loads."""
    found = []
    for name in args.arms.split(","):
        arm = ARMS[name]
        with contextlib.ExitStack() as stack:
            port, roles = stack.enter_context(sglang(args.python, model, arm, folder))
            target = {"host": "127.0.0.1", "port": port, "key": ENGINE_KEY, "model": MODEL, "extra": {}}
            if arm.has_gateway:
                tokens = (str(frames_path(_link(folder))),) if arm.is_direct else ()
                target["port"], roles["gateway"] = stack.enter_context(gateway(port, *tokens))
                target["key"] = GATEWAY_KEY
            for streams in args.streams:
                load = StreamLoad(
                    streams=streams,
                    mean_tokens=args.mean_tokens,
                    warm_up_s=args.warm_up_s,
                    measured_s=args.seconds,
                    path=args.path,
                )
                Console(stderr=True).print(f"{name}: {streams} streams ...")
                found.append(
                    {"arm": name, "streams": streams}
                    | run_load(target, load, roles, folder / f"{name}.counts", _link(folder))
                )
                Console(stderr=True).print(str(found[-1]))
                time.sleep(3.0)  # what was left unfinished is aborted
    return found


def show(found: Sequence[Mapping[str, Any]]) -> None:
    """One line for each arm and load."""
    table = Table(title="CPU microseconds per token, by process")
    for heading in (
        "arm",
        "streams",
        "tokens/s",
        "events/s",
        *ROLES,
        "client",
        "us/step",
        "gap p50 / p99 / p99.9 / max, ms",
        "full collections",
        "failed",
    ):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for row in found:
        costs = row["us_per_token"]
        table.add_row(
            row["arm"],
            str(row["streams"]),
            f"{row['tokens_per_s']:.0f}",
            f"{row['events_per_s']:.0f}",
            *(f"{costs[role]:.1f}" if role in costs else "" for role in (*ROLES, "client")),
            f"{row['us_per_step']:.0f}",
            " / ".join(
                f"{row[key]:.1f}" for key in ("gap_p50_ms", "gap_p99_ms", "gap_p999_ms", "gap_max_ms")
            ),
            ", ".join(
                f"{process} {found[2]['count']:.0f} of up to {found[2]['longest_ms']:.0f} ms"
                for process, found in sorted(row["collections"].items())
            ),
            str(row["failed"]),
        )
    Console(width=140).print(table)


def main() -> int:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-sglang/bin/python", help="SGLang's")
    parser.add_argument("--arms", default=",".join(ARMS), help="of them (default: %(default)s)")
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS, help="at a time")
    parser.add_argument("--mean-tokens", type=int, default=200, help="of an answer (default: %(default)s)")
    parser.add_argument("--warm-up-s", type=float, default=8.0, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (default: %(default)s)")
    parser.add_argument("--path", default="/v1/completions", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the result there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pdmuxd-bench-") as name:
        folder = Path(name)
        found = measure(args, model_folder(folder / "model"), folder)
    show(found)
    if args.json is not None:
        args.json.write_text(json.dumps({"cpus": os.cpu_count(), "step_s": STEP_S, "rows": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
