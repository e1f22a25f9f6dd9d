"""What the probes time, and how what they found is shown. The way through SGLang needs one to run."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import micro
import micro_table
import probe_plugin
import pytest
from probe_turns import SGLANGS, TurnTimes

HERE = Path(__file__).parent


class Part:
    """A part of a port: each call takes a little while."""

    def __getattr__(self, name):
        raise AttributeError(name)


def part(*names):
    def call(self, *_):
        time.sleep(0.02)

    return type("Part", (Part,), dict.fromkeys(names, call))()


def port():
    made = part(*SGLANGS[""])
    made.decode, made.prefill = part(*SGLANGS["decode"]), part(*SGLANGS["prefill"])
    return made


class Loop:
    """A turn that launches, or does not."""

    def __init__(self, told):
        self.port, self.launches = port(), True
        self.times = TurnTimes(self.port, part("wait"), told.append)

    def turn(self):
        self.port.take_input()
        if self.launches:
            self.port.decode.launch_decode()
            self.port.decode.read()


def test_sglangs_own_calls_are_left_out_when_a_turn_is_timed():
    told = []
    loop = Loop(told)
    loop.times.attach(Loop)
    try:
        for _ in range(3):
            loop.turn()
    finally:
        Loop.turn = Loop.turn.__wrapped__
    assert len(loop.times._ours) == 3
    assert max(loop.times._ours) < 0.02
    assert not told


def test_turns_are_told_when_the_loop_was_idle_for_a_while():
    told = []
    loop = Loop(told)
    loop.times._ours, loop.times._last_s = [1e-5] * 99 + [1e-3], -10.0
    loop.times._ended(0.0, 0.0)
    (report,) = told
    assert report["turns"] == 100
    assert report["median_s"] == pytest.approx(1e-5)
    assert report["worst_s"] == 1e-3


def test_the_timers_refuse_a_port_when_a_call_is_missing():
    broken = port()
    broken.decode = part("settle")
    with pytest.raises(AttributeError, match="launch_decode"):
        TurnTimes(broken, part("wait"), print)


def test_the_real_port_has_the_calls_that_are_left_out():
    from pdmuxd.engine.sglang.port import DecodeStream, EnginePort, PrefillStream

    for part_name, protocol in (("", EnginePort), ("decode", DecodeStream), ("prefill", PrefillStream)):
        assert set(SGLANGS[part_name]) <= set(vars(protocol))


def test_sglang_finds_the_plugin_when_it_is_installed(tmp_path):
    environment = probe_plugin.install(tmp_path)
    (entry,) = metadata.Distribution.at(tmp_path / "pdmuxd_probe-1.dist-info").entry_points
    assert (entry.group, entry.name) == ("sglang.srt.plugins", environment["SGLANG_PLUGINS"])
    code = f"import {entry.module}; print({entry.module}.{entry.attr}.__name__)"
    env = os.environ | {"PYTHONPATH": environment["PYTHONPATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "register\n", done.stderr


FOUND = [
    {
        "what": "switch",
        "bs": 8,
        "groups": [[96, 36], [80, 52]],
        "lost_s": 4e-5,
        "lost_worst_s": 9e-5,
        "step_s": 0.006,
        "host_s": 3e-5,
    },
    {
        "what": "turns",
        "policy": "auto",
        "cell": "conv:16",
        "turns": 9,
        "median_s": 8e-5,
        "p90_s": 1e-4,
        "p99_s": 2e-4,
    },
    {"what": "layerwise", "tokens": 4096, "layers_at_once": 8, "took_s": 0.101, "whole_s": 0.1},
    {"what": "memory", "of": "free before the weights", "bytes": 100 * 2**30},
    {"what": "memory", "of": "contexts", "groups": 8, "bytes": 2**30},
    {"what": "memory", "of": "activations", "sms": 132, "tokens": 16384, "bytes": 2**30},
    {"what": "memory", "of": "activations", "sms": 112, "tokens": 16384, "bytes": 2**30},
    {"what": "failed", "probe": "turns", "error": "nothing"},
]


def test_what_was_found_is_shown_beside_the_aim():
    shown = "\n".join(micro_table.lines(FOUND))
    assert "device time lost, median (worst) | 40 (90) us | 200 us |" in shown
    assert "| 80 / 100 / 200 us | 100 / - / 300 us |" in shown
    assert "| +1.0% | +1.5% |" in shown
    assert "| memory of contexts, graphs and further streams | 2.0% | 7% |" in shown
    assert "FAILED: nothing" in shown


def test_results_are_shown_again_when_they_were_kept(tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps({"what": "micro", "found": FOUND}) + "\n")
    done = subprocess.run(
        [sys.executable, str(HERE / "micro.py"), "--show", "r.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "+1.0%" in done.stdout


def test_memory_is_read_from_sglangs_log(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "Load weight begin. avail mem=139.06 GB\n"
        "Capture target decode CUDA graph end. bs=[1], elapsed=11 s, mem usage=1.58 GB, avail mem=21 GB\n"
    )
    assert {one["of"]: round(one["bytes"] / 2**30, 2) for one in micro.from_log(log)} == {
        "graphs of all groups": 1.58,
        "free before the weights": 139.06,
    }
