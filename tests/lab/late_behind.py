"""What the scheduler makes in time and the client gets late: `late_behind.py --model-shape SHAPE`.

`pdmuxd serve --engine sglang` with made-up weights, as a user starts it, and an open load from a process of
its own. Arms by turns: the garbage collector of every process as Python has it by itself or held as the
product holds it, and tokens through SGLang's HTTP server or straight from the scheduler (a field that only
SGLang's front end answers sends a request the former way). A request is good by client if its first token
came within 1 s plus 1 s per 1,000 prompt tokens and the p99 of its gaps is within `--tbt-ms`; by steps if
the engine's own record of it says so; forgiven if one late gap is left out. Gaps behind the scheduler: those
late at the client less those late at the step. Pauses of 10 ms and more are written down in each process
(`front_end/in_each_process`), of its threads and of its event loop, with the lines where they stood.

A cell may name a policy, which is put in force through REST before it: `chat:held/direct:slack/chunked:1024`,
and behind its load what else is of its own: `chat@tbt=20@rate=90@s=300@seeds=1@slow`: the target in ms, the
arrivals/s, how long they come, for how many of the seeds it is run, and a slow host: all of pdmuxd's
processes share two cores, and for each of them a process that does nothing but compute shares these too.
`@unwatched` asks the daemon for nothing while the load lasts, whatever `--steps` says. `@pinned` gives the
scheduler and the gateway a core each, with three idle ones behind it, and all others four together: two
hardware threads of one core slow each other down, and a virtual machine need not say which those are.
All cells are run once per seed, by turns, so that what is compared meets requests of the same lengths at the
same times within minutes; their tokens are others, so that none is in the prefix cache.

Every wait is bounded; an arm that would not end before `--until-s`, or whose policy the engine refuses, is
left out and named (`drift` and `duet` need `--set "engine.sglang.partitions=..."`, which the message tells).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

HERE = Path(__file__).parent
sys.path.insert(1, str(HERE))

from gpu_servers.model_folder import SHAPES, write_model_folder  # noqa: E402
from pdmuxd.engine.link.garbage import GarbageReport, read_reports  # noqa: E402

LOADS = {
    "chat": (150.0, 200, 46),
    "conv": (24.0, 1155, 211),
    "few": (4.0, 40, 20),
    "reasoning": (7.0, 300, 900),
    "summaries": (10.0, 2600, 140),
    "tools": (1.5, 12000, 150),
}
"""Arrivals/s, mean prompt and mean answer in tokens (both log-normal): short chat, conversation (the means of
Azure's trace of 2023), one that a CPU serves, long answers, articles, and calls of tools whose prompts share
nothing."""
SIGMA = 0.6
ARMS = {
    "python/http": (True, "http"),
    "held/http": (False, "http"),
    "held/direct": (False, "direct"),
    "python/direct": (True, "direct"),
    "held/unmeasured": (False, "direct"),
    "held/at-once": (False, "direct"),
    "held/no-insert": (False, "direct"),
    "held/no-log": (False, "direct"),
    "held/no-gauge": (False, "direct"),
    "held/no-history": (False, "direct"),
    "held/no-gauge+no-history": (False, "direct"),
}
MARKS = ("unmeasured", "at-once", "no-history", "no-insert", "no-log", "no-gauge")
"""Arms that leave something out; each process looks for the mark. The last three need `--timed`."""
FRONT_END_FIELD = {"return_token_ids": False}
DRAIN_S = 8.0
IN_FLIGHT = 2_000
"""Of the tenant: its limit is not what is measured."""
READY = "tokens come from the engine's scheduler"


@dataclass(slots=True)
class Answer:
    """One request, as the client saw it."""

    prompt: int
    tokens: int
    due_s: float
    first_s: float | None = None
    last_s: float = 0.0
    gaps_s: list[float] | None = None
    is_done: bool = False
    error: str = ""
    sent_late_s: float = 0.0
    """How late the client itself was to ask."""


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, idle: list[Connection]) -> None:
        self._idle = idle
        self._last = b""
        self.answer: Answer | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, answer: Answer, request: bytes) -> None:
        assert self.transport is not None
        self.answer, self._last = answer, b""
        answer.gaps_s = []
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        answer = self.answer
        if answer is None:
            return
        if not self._last and not data.startswith(b"HTTP/1.1 200 "):
            answer.error = data[:200].decode(errors="replace")
        events = (self._last[-1:] + data).count(b"\n\n")
        self._last = (self._last + data)[-5:]
        if events and not answer.error:
            if answer.first_s is None:
                answer.first_s = now_s
            elif answer.gaps_s is not None:
                answer.gaps_s.append(now_s - answer.last_s)
            answer.last_s = now_s
        if self._last == b"0\r\n\r\n" or answer.error:
            answer.is_done = not answer.error
            self.answer = None
            if answer.error:
                assert self.transport is not None
                self.transport.abort()
            else:
                self._idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        if self.answer is not None:
            self.answer.error = "the connection was closed"
            self.answer = None


def drawn(load: str, seconds: float, seed: int, rate: float | None) -> list[Answer]:
    """Poisson arrivals with log-normal lengths."""
    usual, prompt, tokens = LOADS[load]
    rng = random.Random(seed)
    answers, at_s = [], 0.0

    def length(mean: int) -> int:
        return max(2, round(rng.lognormvariate(0.0, SIGMA) * mean / 2.718281828 ** (SIGMA**2 / 2)))

    while (at_s := at_s + rng.expovariate(rate or usual)) < seconds:
        answers.append(Answer(prompt=length(prompt), tokens=length(tokens), due_s=at_s))
    return answers


async def sent(target: Mapping[str, Any], answers: Sequence[Answer], extra: Mapping[str, Any]) -> float:
    """Send each at its time; what is not done `DRAIN_S` after the last is cut. When arrivals began."""
    loop, rng = asyncio.get_running_loop(), random.Random()
    idle: list[Connection] = []
    all_of_them: list[Connection] = []
    begin_s = time.monotonic() + 0.2
    for answer in answers:
        body: dict[str, Any] = {
            "model": target["model"],
            "prompt": [rng.randrange(3, target["vocab"]) for _ in range(answer.prompt)],
            "max_tokens": answer.tokens,
            "ignore_eos": True,
            "stream": True,
            **extra,
        }
        data = json.dumps(body).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: lab\r\n"
            f"authorization: Bearer {target['key']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        answer.due_s += begin_s
        if (wait_s := answer.due_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        answer.sent_late_s = max(0.0, time.monotonic() - answer.due_s)
        if idle:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: Connection(idle), target["host"], target["port"]
            )
            all_of_them.append(connection)
        connection.ask(answer, head.encode() + data)
    end_s = time.monotonic() + DRAIN_S
    while time.monotonic() < end_s and any(connection.answer for connection in all_of_them):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    for connection in all_of_them:
        connection.answer = None
        if connection.transport is not None:
            connection.transport.abort()
    return begin_s


def client() -> None:
    """In a process of its own: what to send comes as JSON, what was seen goes back."""
    import gc

    given = json.loads(sys.stdin.read())
    answers = drawn(given["load"], given["seconds"], given["seed"], given["rate"])
    gc.collect()
    gc.freeze()
    gc.disable()
    begin_s = asyncio.run(sent(given["target"], answers, given["extra"]))
    rows = [
        {
            "prompt": a.prompt,
            "ttft_s": None if a.first_s is None else a.first_s - a.due_s,
            "gaps_s": a.gaps_s or [],
            "done": a.is_done,
            "error": a.error,
            "sent_late_s": a.sent_late_s,
            "last_s": a.last_s - begin_s,
        }
        for a in answers
    ]
    sys.stdout.write(json.dumps(rows))


def judged(rows: Sequence[Mapping[str, Any]], tbt_s: float) -> dict[str, float]:
    """Shares of the answers, and their gaps. Only what was done, or failed, counts."""
    good = forgiven = late = gaps = 0
    all_gaps: list[float] = []
    counted = [row for row in rows if row["done"] or row["error"] or row["ttft_s"] is None]
    for row in counted:
        ordered = sorted(row["gaps_s"])
        in_time = row["done"] and row["ttft_s"] <= 1.0 + row["prompt"] / 1000.0
        good += in_time and _p99(ordered) <= tbt_s
        forgiven += in_time and _p99(ordered[:-1]) <= tbt_s
        late += sum(gap > tbt_s for gap in ordered)
        gaps += len(ordered)
        all_gaps += ordered
    all_gaps.sort()
    ttfts = sorted(row["ttft_s"] for row in counted if row["ttft_s"] is not None)
    return {
        "answers": len(counted),
        "cut": len(rows) - len(counted),
        "errors": sum(bool(row["error"]) for row in rows),
        "client_late_max_ms": 1e3 * max((row["sent_late_s"] for row in rows), default=0.0),
        "good_by_client": good / max(1, len(counted)),
        "good_forgiven": forgiven / max(1, len(counted)),
        "late_gaps": late,
        "gaps": gaps,
        "gap_p50_ms": 1e3 * _at(all_gaps, 0.5),
        "gap_p99_ms": 1e3 * _at(all_gaps, 0.99),
        "gap_p999_ms": 1e3 * _at(all_gaps, 0.999),
        "gap_max_ms": 1e3 * _at(all_gaps, 1.0),
        "ttft_p50_ms": 1e3 * _at(ttfts, 0.5),
        "ttft_p99_ms": 1e3 * _at(ttfts, 0.99),
    }


def _p99(ordered: Sequence[float]) -> float:
    return _at(ordered, 0.99)


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """What a cell of `--cells` asks for."""

    load: str
    arm: str
    policy: str
    seconds: float
    tbt_ms: float
    rate: float | None
    seeds: int
    is_slow: bool
    is_watched: bool
    is_pinned: bool


def cell_of(text: str, args: argparse.Namespace) -> CellOptions:
    """Read `LOAD[@KEY=VALUE...]:ARM[:POLICY]`; ends the script at what it does not know."""
    first, arm, policy = (*text.split(":", 2), "auto")[:3]
    load, *options = first.split("@")
    given = dict(option.partition("=")[::2] for option in options)
    wrong = set(given) - {"tbt", "rate", "s", "seeds", "slow", "unwatched", "pinned"}
    if wrong or load not in LOADS or arm not in ARMS:
        sys.exit(f"--cells: {text!r} has an unknown load, arm or option; loads are {', '.join(LOADS)}")
    return CellOptions(
        load=load,
        arm=arm,
        policy=policy,
        seconds=float(given.get("s", args.seconds)),
        tbt_ms=float(given.get("tbt", args.tbt_ms)),
        rate=float(given["rate"]) if "rate" in given else args.rate,
        seeds=int(given.get("seeds", len(args.seeds))),
        is_slow="slow" in given,
        is_watched="unwatched" not in given,
        is_pinned="pinned" in given,
    )


@contextlib.contextmanager
def slow_host(one: Serving, wanted: bool) -> Iterator[None]:
    """Two cores for all of pdmuxd's processes, and beside each that passes tokens a busy loop on them."""
    if not wanted:
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    processes = one.processes()
    busy = []
    try:
        for pid in processes:
            _pin(pid, cores[:2])
        for _ in range(4):
            loop = [sys.executable, "-c", "while True: pass"]
            busy.append(subprocess.Popen(loop, preexec_fn=lambda: os.sched_setaffinity(0, cores[:2])))
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for pid in processes:
            _pin(pid, cores)


@contextlib.contextmanager
def cores_apart(one: Serving, wanted: bool) -> Iterator[None]:
    """The scheduler alone on the first core, the gateway alone on the fifth, all others on the ninth to the
    twelfth."""
    cores, processes = sorted(os.sched_getaffinity(0)), one.processes()
    if not wanted:
        yield
        return
    if len(cores) < 12:
        sys.exit(f"@pinned takes 12 cores beside the client's; there are {len(cores)}")
    try:
        for pid in processes:
            own = {"scheduler": cores[:1], "gateway": cores[4:5]}
            _pin(pid, own.get(_role(pid, one.process.pid) or "", cores[8:12]))
        yield
    finally:
        for pid in processes:
            _pin(pid, cores)


def _pin(pid: int, cores: Sequence[int]) -> None:
    """All threads of a process; one that has ended is left out."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task.name), cores)


class Serving:
    """One `pdmuxd serve`, ready; ended by `close`."""

    def __init__(self, args: argparse.Namespace, folder: Path, until_s: float) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.args = args
        model = write_model_folder(args.model_shape, folder / "model")
        (model / "tokenizer.json").write_text(json.dumps(_tokenizer(SHAPES[args.model_shape]["vocab_size"])))
        words = [sys.executable, "-P", "-m", "pdmuxd.daemon.cli.main"]
        settings = [
            *("state_dir=state", "data.port=0", "admin.port=0", "engine.token_path=direct"),
            *("engine.kind=sglang", f"engine.sglang.model={model}", f"engine.sglang.python={args.python}"),
            f"engine.sglang.extra_args={args.flags}",
            *args.settings,
        ]
        words += [word for setting in settings for word in ("--set", setting)]
        paths = (str(HERE / "front_end/in_each_process"), *args.path, os.environ.get("PYTHONPATH", ""))
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "LATE_BEHIND_FOLDER": str(self.marks),
        }
        if args.stacks:
            environ["LATE_BEHIND_STACKS"] = "1"
        if args.timed:
            environ["LATE_BEHIND_TIMED"] = "1"
        if args.profile is not None:
            self._put_in_force(words, environ)
        self.log = (folder / "daemon.log").open("wb")
        self.out = (folder / "daemon.out").open("wb")
        self.process = subprocess.Popen(
            [*words, "serve", "--first-run"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.log,
            start_new_session=True,
        )
        self._until(lambda: " curl " in f" {self._said()}", until_s)
        self._until(lambda: READY in (folder / "daemon.log").read_text(errors="replace"), until_s)
        said = self._said()
        self.admin_url = _found(r"admin plane +(\S+)", said)
        host, _, port = _found(r"data plane +http://(\S+)", said).rpartition(":")
        self.target = {
            "host": host,
            "port": int(port.rstrip("/")),
            "key": _found(r"^ +(pdm_\S+)$", said),
            "model": _found(r"model (\S+)\)", said),
            "vocab": SHAPES[args.model_shape]["vocab_size"],
        }
        self.link = next(iter(self._links()), None)
        self.policy = "auto"

    def _put_in_force(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        """Store the profile of `--profile` and activate it as it is, before the daemon is there."""

        def said(*command: str) -> str:
            return subprocess.check_output(
                [*words, *command], cwd=self.folder, env=dict(environ), text=True, stdin=subprocess.DEVNULL
            )

        said("db", "upgrade")
        stored = json.loads(said("profile", "import", str(self.args.profile.absolute()), "--json"))
        say(said("profile", "activate", str(stored["id"]), "--force"))

    def processes(self) -> list[int]:
        """Of the daemon and all that it has started."""
        parents: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = (folder / "stat").read_text()
                parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def _links(self) -> list[str]:
        """The engine's link: its command line names it."""
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and os.getpgid(int(folder.name)) != 0:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    if b"--link" in words and str(self.process.pid).encode() in words:
                        found.append(words[words.index(b"--link") + 1].decode())
        return found

    def _said(self) -> str:
        return (self.folder / "daemon.out").read_text(errors="replace")

    def _until(self, holds: Any, until_s: float) -> None:
        told_s = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() > until_s:
                for name in ("daemon.log", "daemon.out", "state/engine.log"):
                    with contextlib.suppress(OSError):
                        say(f"{name}: ...{(self.folder / name).read_text(errors='replace')[-2500:]}")
                self.close()
                sys.exit("pdmuxd did not become ready")
            if time.monotonic() - told_s > 20:
                told_s = time.monotonic()
                say("starting ...")
            time.sleep(0.3)

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def reports(self) -> dict[str, GarbageReport]:
        return {} if self.link is None else {report.process: report for report in read_reports(self.link)}

    def close(self) -> None:
        """Within 20 s."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)


def _tokenizer(vocab: int) -> dict[str, Any]:
    """Every token a word of its own: an answer of any tokens has text in each event."""
    tokens = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"Ġw{number}": number for number in range(3, vocab)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": text, "special": True, "single_word": False}
            | {"lstrip": False, "rstrip": False, "normalized": False}
            for number, text in enumerate(("<pad>", "<s>", "</s>"))
        ],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": tokens, "merges": [], "unk_token": "<pad>"},
    }


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        sys.exit(f"pdmuxd did not say {pattern}: {text[-2000:]}")
    return match[1]


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGUN_S:5.0f} s] {text}", flush=True)


BEGUN_S = time.monotonic()


def total(metrics: Mapping[str, float], name: str) -> float:
    """Over all labels."""
    return sum(value for key, value in metrics.items() if key == name or key.startswith(name + "{"))


def arm(one: Serving, cell: CellOptions, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One load; what the client and the engine say of it."""
    _set_policy(one, cell.policy)
    _set_target(one, cell.tbt_ms)
    load, name, seconds = cell.load, cell.arm, cell.seconds
    is_python, token_path = ARMS[name]
    mark = one.marks / "python"
    mark.touch() if is_python else mark.unlink(missing_ok=True)
    for without in MARKS:
        mark = one.marks / without
        mark.touch() if without in name.partition("/")[2].split("+") else mark.unlink(missing_ok=True)
    time.sleep(2.0)  # each process looks once a second at least
    given = {
        "target": one.target,
        "load": load,
        "seconds": seconds,
        "seed": seed,
        "rate": cell.rate,
        "extra": FRONT_END_FIELD if token_path == "http" else {},
    }
    before, reports, begin_s = one.metrics(), one.reports(), time.monotonic()
    title = f"{load} {name} {cell.policy} {cell.tbt_ms:g} {seed}"
    gpu: dict[str, list[float]] = {}
    with (
        slow_host(one, cell.is_slow),
        cores_apart(one, cell.is_pinned),
        read_meanwhile(CLOCK_READER, args.spin, seconds) as gaps,
        read_meanwhile(MEMORY_READER, args.touch, seconds) as passes,
        contextlib.ExitStack() as watching,
    ):
        if cell.is_watched:
            watching.enter_context(steps_kept(one, args, title))
            gpu = watching.enter_context(gpu_kept(one))
        seen = subprocess.run(
            [*args.client_cores, sys.executable, "-P", __file__, "--client"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=seconds + DRAIN_S + 60,
            check=False,
        )
    if seen.returncode:
        sys.exit(f"the client failed: {seen.stderr[-2000:]}")
    time.sleep(1.5)  # records and reports come once a second
    end_s, after = time.monotonic(), one.metrics()
    told = {key: total(after, key) - total(before, key) for key in COUNTED}
    finished = told["pdmuxd_tbt_requests_total"]
    answers = json.loads(seen.stdout)
    row: dict[str, Any] = {"load": load, "arm": name, "policy": cell.policy, "seed": seed}
    row |= {"tbt_ms": cell.tbt_ms, "rate": cell.rate or LOADS[load][0], "seconds": seconds}
    row |= {"is_slow_host": cell.is_slow}
    row |= judged(answers, cell.tbt_ms / 1e3)
    row["seconds_to_the_last_answer"] = max((one["last_s"] for one in answers), default=0.0)
    row["first_error"] = next((answer["error"] for answer in answers if answer["error"]), "")
    late_at_steps = told["pdmuxd_tbt_gaps_total"] - told["pdmuxd_tbt_gaps_met_total"]
    row |= {
        "good_by_steps": told["pdmuxd_good_requests_total"] / finished if finished else 0.0,
        "late_at_steps": late_at_steps,
        "late_behind_ratio": max(0.0, row["late_gaps"] - late_at_steps) / max(1, row["gaps"]),
        "direct_tokens": told["pdmuxd_direct_tokens_total"],
        "prompt_tokens": told["pdmuxd_prompt_tokens_total"],
        "output_tokens": told["pdmuxd_output_tokens_total"],
        "pauses": pauses(one, begin_s, end_s),
        "calls": calls(one, begin_s, end_s),
    }
    row["gaps_of_clock_readers"] = [[(at_s - begin_s, ms) for at_s, ms in one] for one in gaps]
    row["passes_of_memory_readers"] = [[(at_s - begin_s, ms) for at_s, ms in one] for one in passes]
    row["begin_s"] = begin_s
    row["is_watched"], row["is_pinned"] = cell.is_watched, cell.is_pinned
    row["gpu"] = {name: statistics.median(seen) for name, seen in gpu.items() if seen}
    row["gateway_collections_s"] = gateway_collections_s(after) - gateway_collections_s(before)
    row["loop_lag"] = {
        key: after[key] - before.get(key, 0.0) for key in after if key.startswith("pdmuxd_loop_lag_seconds_")
    }
    row["steps_at_once"] = after.get("pdmuxd_direct_steps_at_once", 0.0)
    row["delivery_ms"] = {
        kind: 1e3 * after.get(f"pdmuxd_delivery_{kind}_seconds", 0.0) for kind in ("late", "planned")
    }
    row["decisions"] = {
        key.partition("{")[2]: after[key] - before.get(key, 0.0)
        for key in after
        if key.startswith("pdmuxd_decisions_total") and after[key] > before.get(key, 0.0)
    }
    row["stalls"] = {
        key.partition('"')[2].partition('"')[0]: after[key] - before.get(key, 0.0)
        for key in after
        if key.startswith("pdmuxd_engine_stalls_by_cause_total") and after[key] > before.get(key, 0.0)
    }
    row["predictions"] = {
        key.removeprefix("pdmuxd_prediction_"): after[key]
        for key in after
        if key.startswith("pdmuxd_prediction_")
    }
    row["full_collections"] = {
        process: report.generations[2].count
        - (reports[process].generations[2].count if process in reports else 0)
        for process, report in one.reports().items()
    }
    row["long_collections"] = {
        process: [
            (it.generation, round(1e3 * it.duration_s, 1))
            for it in report.recent
            if begin_s <= it.ended_s <= end_s
        ]
        for process, report in one.reports().items()
    }
    return row


CLOCK_READER = """
import json, sys, time
end, gaps, last = time.monotonic() + float(sys.argv[1]), [], time.monotonic()
while last < end:
    now = time.monotonic()
    if now - last > 0.002:
        gaps.append((last, round(1e3 * (now - last), 1)))
    last = now
print(json.dumps(gaps))
"""
"""Its gaps of over 2 ms: when, on the clock that all processes share, and how long."""
MEMORY_READER = """
import json, statistics, sys, time
end, memory, passes = time.monotonic() + float(sys.argv[1]), bytearray(1 << 29), []
for at in range(0, len(memory), 4096):
    memory[at] = 1
while (begin := time.monotonic()) < end:
    memory[::4096]
    passes.append((begin, round(1e3 * (time.monotonic() - begin), 2)))
usual = statistics.median(ms for _, ms in passes)
print(json.dumps([(0.0, usual)] + [one for one in passes if one[1] > 1.5 * usual]))
"""
"""Reads a byte of each page of 512 MiB, pass after pass: what the usual one takes (at 0.0), and those of over
1.5 times that. A host that maps a machine's memory anew stops these and not the readers of the clock."""


@contextlib.contextmanager
def read_meanwhile(reader: str, processes: int, seconds: float) -> Iterator[list[list[tuple[float, float]]]]:
    """Run as many processes of `reader` meanwhile, and have what each of them saw at the end: what stops
    these stops the machine."""
    found: list[list[tuple[float, float]]] = []
    command = [sys.executable, "-c", reader, str(seconds)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    try:
        yield found
        found += [json.loads(process.communicate(timeout=30)[0]) for process in readers]
    finally:
        for process in readers:
            process.kill()
            process.wait()


@contextlib.contextmanager
def every(seconds: float, look: Callable[[], None]) -> Iterator[None]:
    """Look so often meanwhile, in a thread."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(seconds):
            look()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


@contextlib.contextmanager
def steps_kept(one: Serving, args: argparse.Namespace, title: str) -> Iterator[None]:
    """Write each decision meanwhile, asked for once a second, to `--steps`: a line of JSON each."""
    if args.steps is None:
        yield
        return
    seq: int | None = None

    def look() -> None:
        nonlocal seq
        words = "?limit=1" if seq is None else f"?limit=1000&after_seq={seq}"
        for seen in reversed(_asked(one, f"decisions{words}")[1]["decisions"]):
            seq = seen["seq"]
            file.write(json.dumps({"cell": title} | {name: seen[name] for name in OF_A_STEP}) + "\n")

    with args.steps.open("a") as file, every(1.0, look):
        yield


@contextlib.contextmanager
def gpu_kept(one: Serving) -> Iterator[dict[str, list[float]]]:
    """The SMs' clock in MHz and the power in W, asked for every 4 s."""
    seen = dict[str, list[float]](clock_mhz=[], power_w=[])

    def look() -> None:
        metrics = one.metrics()
        seen["clock_mhz"].append(1e-6 * total(metrics, "pdmuxd_engine_gpu_clock_hertz"))
        seen["power_w"].append(total(metrics, "pdmuxd_engine_gpu_power_watts"))

    with every(4.0, look):
        yield seen


OF_A_STEP = (
    *("at", "mode", "reason", "decode_sms", "decode_bs", "decode_reused_tokens", "prefill_new_tokens"),
    *("prefill_layers", "sitting_out", "predicted_ms", "measured_ms", "guard_ratio"),
    "stall_cause",
)
COUNTED = (
    *("pdmuxd_tbt_requests_total", "pdmuxd_good_requests_total", "pdmuxd_tbt_gaps_total"),
    *("pdmuxd_tbt_gaps_met_total", "pdmuxd_direct_tokens_total", "pdmuxd_prompt_tokens_total"),
    "pdmuxd_output_tokens_total",
)


def gateway_collections_s(metrics: Mapping[str, float]) -> float:
    """Seconds of the gateway's garbage collections so far."""
    return sum(
        value
        for key, value in metrics.items()
        if key.startswith("pdmuxd_gc_seconds_total") and 'process="gateway"' in key
    )


def pauses(one: Serving, begin_s: float, end_s: float) -> dict[str, dict[str, Any]]:
    """By process: how many of 10 ms and more, the longest and where it was, and its wait for a core then."""
    found: dict[str, dict[str, Any]] = {}
    for path in (*one.marks.glob("*.pauses"), *one.marks.glob("*.loop")):
        role = _role(int(path.stem), one.process.pid)
        if role is not None and path.suffix == ".loop":
            role += " loop"
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
        inside = [row for row in rows if begin_s <= row[0] <= end_s]
        if role is not None and inside:
            inside.sort(key=lambda row: -row[1])
            _, longest_s, waited_s, _ = inside[0]
            found[role] = {
                "count": len(inside),
                "longest_ms": round(1e3 * longest_s, 1),
                "of_it_for_a_core_ms": round(1e3 * min(waited_s, longest_s), 1),
                "over_15_ms": sum(row[1] > 0.015 for row in inside),
                "where": [(round(row[0] - begin_s, 1), round(1e3 * row[1], 1), row[3]) for row in inside[:6]],
            }
    return found


def calls(one: Serving, begin_s: float, end_s: float) -> dict[str, Any]:
    """Of `--timed`: by call its number, ms by the clock and ms of the processor, for each step launched."""
    found: dict[str, Any] = {}
    for path in one.marks.glob("*.timed"):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        found["missing"] = next((line["missing"] for line in lines if "missing" in line), [])
        inside = [line for line in lines if begin_s <= line.get("at", 0.0) <= end_s]
        if len(inside) < 2:
            continue
        first, last = inside[0], inside[-1]
        taken = {
            name: [b - a for a, b in zip(first["calls"][name], now, strict=True)]
            for name, now in last["calls"].items()
        }
        steps = max(1.0, taken["Scheduler.run_batch"][0])
        found["per_step"] = {
            name: [round(n / steps, 2), round(1e3 * clock_s / steps, 3), round(1e3 * computed_s / steps, 3)]
            for name, (n, clock_s, computed_s) in taken.items()
        }
        found["long"] = [call for line in inside for call in line["long"]]
        found["memory_taken"] = [b - a for a, b in zip(first["taken"], last["taken"], strict=True)]
        ran_s, waited_s = (b - a for a, b in zip(first["main"], last["main"], strict=True))
        seconds = last["at"] - first["at"]
        found |= {"steps": steps, "ms": round(1e3 * seconds / steps, 3)}
        found |= {"ran_ratio": round(ran_s / seconds, 4), "for_a_core_ratio": round(waited_s / seconds, 5)}
    return found


def _role(pid: int, daemon: int) -> str | None:
    if pid == daemon:
        return "gateway"
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    if b"sglang::scheduler" in title:
        return "scheduler"
    if b"sglang::detokenizer" in title:
        return "detokenizer"
    return "http" if b"pdmuxd.engine.sglang" in title else None


GAPS = ("gap_p50_ms", "gap_p99_ms", "gap_p999_ms", "gap_max_ms")


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The short table, last."""
    print(
        "\n| load, arm, policy, seed | good client / forgiven / steps, % "
        "| refused or failed, % | late behind, % of gaps | gaps p50/99/99.9/max "
        "| TTFT p50/p99 ms | longest pause per process, ms (for a core) | full collections |\n"
        "|---|---|---:|---|---|---|---|---|"
    )
    for row in rows:
        stopped = ", ".join(
            f"{role} {it['longest_ms']:.0f} ({it['of_it_for_a_core_ms']:.0f}) of {it['count']:.0f}"
            for role, it in sorted(row["pauses"].items())
        )
        full = ", ".join(
            f"{process} {count}" + (f" up to {max(ms for _, ms in long):.0f} ms" if long else "")
            for process, count in sorted(row["full_collections"].items())
            for long in [row["long_collections"].get(process, [])]
        )
        print(
            f"| {row['load']} {row['rate']:g}/s {row['seconds']:g} s, {row['tbt_ms']:g} ms"
            f"{', slow host' * row['is_slow_host']}, {row['arm']}, {row['policy']}, {row['seed']} "
            f"| {100 * row['good_by_client']:.1f} / {100 * row['good_forgiven']:.1f} / "
            f"{100 * row['good_by_steps']:.1f} | {100 * row['errors'] / max(1, row['answers']):.1f} "
            f"| {100 * row['late_behind_ratio']:.3f} "
            f"| {'/'.join(f'{row[key]:.1f}' for key in GAPS)} "
            f"| {row['ttft_p50_ms']:.0f}/{row['ttft_p99_ms']:.0f} | {stopped} | {full} |",
            flush=True,
        )


def show_calls(rows: Sequence[Mapping[str, Any]]) -> None:
    """What the calls of a step take, a column for each row of `--timed`."""
    timed = [row for row in rows if row["calls"].get("per_step")]
    if not timed:
        return
    print(
        "\n| for each step, number: ms by the clock, of the processor |"
        + "".join(f" {row['load']} {row['arm']} {row['seed']} |" for row in timed)
        + "\n|---|"
        + "---|" * len(timed)
    )
    print(
        "| all |"
        + "".join(
            f" {row['calls']['ms']:.2f} ms, main thread computes {100 * row['calls']['ran_ratio']:.1f}% |"
            for row in timed
        )
    )
    for name in timed[0]["calls"]["per_step"]:
        cells = (row["calls"]["per_step"].get(name, (0, 0, 0)) for row in timed)
        print(f"| {name} |" + "".join(f" {n:.2f}: {clock:.2f}, {own:.2f} |" for n, clock, own in cells))


@contextlib.contextmanager
def serving(args: argparse.Namespace) -> Iterator[Serving]:
    """From the start to the end; logs are kept beside `--json`."""
    with tempfile.TemporaryDirectory(prefix="late-behind-") as name:
        try:
            one = Serving(args, Path(name), BEGUN_S + args.start_s)
            try:
                yield one
            finally:
                one.close()
        finally:
            if args.json is not None:
                marks = Path(name) / "marks"
                own = (*marks.glob("*.stacks"), *marks.glob("*.timed"))
                for kept in ("daemon.log", "state/engine.log", *own):
                    with contextlib.suppress(OSError):
                        shutil.copy(Path(name) / kept, args.json.parent)


def main() -> int:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model-shape", choices=sorted(SHAPES), default="llama-8b")
    parser.add_argument("--python", default=sys.executable, help="SGLang's (default: this one)")
    parser.add_argument("--flags", default="--load-format dummy", help="SGLang's own (default: %(default)s)")
    parser.add_argument("--path", action="append", default=[], help="more for PYTHONPATH")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="more settings")
    parser.add_argument(
        "--cells",
        nargs="+",
        default=["chat:" + name for name in ARMS],
        help="LOAD:ARM or LOAD:ARM:POLICY, in order; options behind LOAD, see above",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[11], help="all cells once for each")
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals each (default: %(default)s)")
    parser.add_argument("--rate", type=float, help="arrivals/s in place of the load's own")
    parser.add_argument("--tbt-ms", type=float, default=50.0)
    parser.add_argument("--start-s", type=float, default=420.0, help="until it is ready, at most")
    parser.add_argument("--until-s", type=float, default=480.0, help="of all of this (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="keep the rows there, after each")
    parser.add_argument("--steps", type=Path, metavar="PATH", help="add each decision's numbers there")
    parser.add_argument(
        "--stacks", action="store_true", help="where SGLang's scheduler is, 250 times a second"
    )
    parser.add_argument(
        "--timed", action="store_true", help="what the calls of its turns take of SGLang's scheduler"
    )
    parser.add_argument("--spin", type=int, default=0, help="so many processes that read the clock meanwhile")
    parser.add_argument("--touch", type=int, default=0, help="so many that read 512 MiB of memory meanwhile")
    parser.add_argument("--profile", type=Path, help="an exported profile, put in force before the start")
    args = parser.parse_args()
    if args.client:
        client()
        return 0
    # The client has two cores for itself where there are many.
    cores = sorted(os.sched_getaffinity(0))
    args.client_cores = []
    if len(cores) >= 8 and shutil.which("taskset"):
        args.client_cores = ["taskset", "-c", f"{cores[-2]},{cores[-1]}"]
        os.sched_setaffinity(0, cores[:-2])
    rows: list[dict[str, Any]] = []
    cells = [cell_of(text, args) for text in args.cells]
    with serving(args) as one:
        say(f"ready, {len(cores)} cores, link {one.link}")
        (one.marks / "serves").touch()
        _request(one, "tenants/default", "PATCH", {"max_in_flight": IN_FLIGHT})
        # Kernels, caches, connections.
        arm(one, replace(cells[0], arm="held/direct", policy="auto", seconds=6.0, is_slow=False), 7, args)
        for (number, seed), cell in itertools.product(enumerate(args.seeds), cells):
            if number >= cell.seeds:
                continue
            if time.monotonic() - BEGUN_S + cell.seconds + DRAIN_S + 6 > args.until_s:
                say(f"no time is left for {cell}, seed {seed}")
                continue
            try:
                row = arm(one, cell, seed, args)
            except NotInForceError as error:
                say(f"left out, not in force: {error}")
                continue
            rows.append(row)
            say(json.dumps(row))
            if args.json is not None:
                args.json.write_text(json.dumps(rows, indent=1))
        say("stopping")
    show(rows)
    show_calls(rows)
    wanted = sum(min(cell.seeds, len(args.seeds)) for cell in cells)
    if len(rows) < wanted:
        print(f"{len(rows)} of {wanted} cells were measured: the lines above name the others")
    return 0 if len(rows) == wanted else 1


def _asked(one: Serving, path: str) -> tuple[str, Any]:
    """What `path` shows, with its tag."""
    request = urllib.request.Request(f"{one.admin_url}/api/v1/{path}", headers=_token(one))
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.headers["etag"]), json.load(answer)


def _request(one: Serving, path: str, method: str, wanted: dict[str, Any], kept: Sequence[str] = ()) -> None:
    """Set what `path` shows; `kept` are fields that stay as they are."""
    tag, shown = _asked(one, path)
    head = _token(one) | {"content-type": "application/json", "if-match": tag}
    body = json.dumps(wanted | {name: shown[name] for name in kept}).encode()
    url = f"{one.admin_url}/api/v1/{path}"
    urllib.request.urlopen(
        urllib.request.Request(url, data=body, headers=head, method=method), timeout=10
    ).close()


def _token(one: Serving) -> dict[str, str]:
    token = (one.folder / "state" / "admin-token").read_text().strip()
    return {"authorization": f"Bearer {token}"}


def _set_target(one: Serving, tbt_ms: float) -> None:
    wanted = {"ttft_fixed_ms": 1000, "ttft_per_1k_new_tokens_ms": 1000, "tbt_ms": tbt_ms}
    _request(one, "tenants/default/slo", "PUT", wanted, ("attainment_ratio",))


class NotInForceError(Exception):
    """The engine keeps the policy that it had."""


def _set_policy(one: Serving, policy: str) -> None:
    """Put it in force and wait for it, 20 s at most. Raises: NotInForceError."""
    if policy == one.policy:
        return
    _request(one, "policy", "PUT", {"policy": policy})
    one.policy = ""
    until_s = time.monotonic() + 20.0
    while not (shown := _asked(one, "policy")[1])["in_force"]:
        if shown["why"] or time.monotonic() > until_s:
            raise NotInForceError(f"{policy}: {shown['why'] or 'no word of the engine for 20 s'}")
        time.sleep(0.1)
    one.policy = policy
    time.sleep(2.0)


if __name__ == "__main__":
    sys.exit(main())
