"""What the probes time, and how what they found is shown. The way through SGLang needs one to run."""

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
from engine_rig import Rig

from experiments import command_of
from gpu_plans import micro, micro_table
from in_sglang.probe_turns import ITEMISED, OURS, SGLANGS, TurnTimes


class Clock:
    """Goes on by a second with each call of a part."""

    now_s = 0.0

    def __call__(self):
        return self.now_s

    def cpu_s(self):
        """Half of the time the thread waits."""
        return self.now_s / 2.0


def part(clock, *names):
    def call(self, *_):
        clock.now_s += 1.0

    return type("Part", (), dict.fromkeys(names, call))()


def port(clock):
    made = part(clock, *SGLANGS[""], *OURS["port"])
    made.state = part(clock, *OURS["state"])
    made.decode, made.prefill = part(clock, *SGLANGS["decode"]), part(clock, *SGLANGS["prefill"])
    return made


def times(of, clock, write):
    reporter, policy_runtime = part(clock, *OURS["reporter"]), part(clock, *OURS["policy_runtime"])
    return TurnTimes(
        port=of,
        streams=part(clock, "wait"),
        reporter=reporter,
        policy_runtime=policy_runtime,
        write=write,
        clock=clock,
        cpu_clock=clock.cpu_s,
    )


def loop(told):
    """A turn of two seconds of SGLang's own, and one of ours."""
    clock = Clock()

    class Loop:
        port = None
        launches = True

        def turn(self):
            self.port.take_input()
            self.port.use_group()
            if self.launches:
                self.port.decode.launch_decode()

    made = Loop()
    made.port = port(clock)
    made.clock, made.times = clock, times(made.port, clock, told.append)
    made.times.attach(Loop)
    return made


def test_only_our_own_calls_count_when_a_turn_is_timed():
    made = loop([])
    for _ in range(ITEMISED + 1):
        made.turn()
    assert made.times._cpu_s == [0.5] * (ITEMISED // 2)
    assert made.times._wall_s == [1.0] * (ITEMISED // 2 - 1)
    assert made.times._shares == {"port.use_group": 2.0, "the rest": 0.0}


def test_a_turn_that_launches_nothing_does_not_count():
    made = loop([])
    made.launches = False
    made.turn()
    assert made.times._cpu_s == made.times._wall_s == []


def test_turns_are_told_when_the_loop_was_idle_for_a_while():
    told = []
    made = loop(told)
    for _ in range(ITEMISED + 2):
        made.turn()
    made.launches = False
    assert told == []
    made.turn()
    (report,) = told
    assert report["turns"] == ITEMISED + 2
    assert (report["median_s"], report["worst_s"]) == (0.5, 0.5)
    assert (report["wall_median_s"], report["wall_worst_s"]) == (1.0, 1.0)
    assert report["shares_s"] == {"port.use_group": 1.0, "the rest": 0.0}


def test_a_share_is_without_the_shares_inside_it():
    made = loop([])
    reporter = part(made.clock, *OURS["reporter"])

    def exchange(self):
        self.port.take_input()
        self.port.state.decode_shape()
        made.clock.now_s += 4.0

    outer = type("Outer", (type(reporter),), {"exchange": exchange, "port": made.port})()
    made.times._itemise(outer, "reporter", ("exchange",))
    type(made).turn.__wrapped__(made)  # nothing is itemised outside of a turn
    assert made.times._parts == {}
    made.times._itemising = True
    outer.exchange()
    assert made.times._parts == {"state.decode_shape": 1.0, "reporter.exchange": 4.0}


def test_a_loop_has_the_calls_that_are_itemised():
    rig = Rig()
    made = TurnTimes(
        port=rig.port,
        streams=rig.device,
        reporter=rig.loop._reporter,
        policy_runtime=rig.loop.policy_runtime,
        write=print,
    )
    made.itemise(rig.loop)
    made._itemising = True
    rig.decoding("a")
    assert {"ledger.watch", "ledger.give_tokens", "view.observe", "planner.plan", "prefill.launch"} <= set(
        made._parts
    )


def test_the_timers_refuse_a_port_when_a_call_is_missing():
    clock = Clock()
    broken = port(clock)
    broken.decode = part(clock, "settle")
    with pytest.raises(AttributeError, match="launch_decode"):
        times(broken, clock, print)


def test_the_real_port_has_the_calls_that_are_left_out():
    from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
    from pdmuxd.engine.loop.port import DecodeStream, EnginePort, EngineState, PrefillStream
    from pdmuxd.engine.sglang.reporting import Reporter

    assert set(OURS["port"]) <= {*vars(EnginePort), "reused_tokens"}, (
        "the ledger asks SGLang's port for those"
    )
    assert set(OURS["state"]) <= set(vars(EngineState))
    assert set(OURS["reporter"]) <= set(vars(Reporter))
    assert set(OURS["policy_runtime"]) <= set(vars(PolicyRuntime))
    for part_name, protocol in (("", EnginePort), ("decode", DecodeStream), ("prefill", PrefillStream)):
        assert set(SGLANGS[part_name]) <= set(vars(protocol))


def test_sglang_finds_the_plugin_when_it_is_installed(tmp_path):
    environment = micro.install_probes(tmp_path)
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
        "wall_median_s": 9e-5,
        "wall_p90_s": 2e-4,
        "wall_p99_s": 4e-4,
        "shares_s": {"policy_runtime.learn": 1e-6, "policy_runtime.decide": 5e-5},
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
    assert "| 90 / 200 / 400 us | |" in shown
    assert "| policy_runtime.decide 50, policy_runtime.learn 1 us |" in shown
    assert "| +1.0% | +1.5% |" in shown
    assert "| memory of contexts and graphs | 1.0% | 7% |" in shown
    assert "| memory of those and further streams | 2.0% | 7% |" in shown
    assert "FAILED: nothing" in shown


def test_results_are_shown_again_when_they_were_kept(tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps({"what": "micro", "found": FOUND}) + "\n")
    done = subprocess.run(
        [*command_of("micro"), "--show", "r.jsonl"],
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


async def test_the_report_of_the_most_turns_counts_when_there_are_several(tmp_path, monkeypatch):
    monkeypatch.setattr(micro, "_LOOK_S", 0.0)
    monkeypatch.setattr(micro, "_SETTLED_S", 0.0)
    probes = micro.Probes(tmp_path / "probes.jsonl")
    assert await probes.longest_turns(0) is None
    told = [{"what": "turns", "turns": turns} for turns in (9000, 10, 400, 3)]
    (tmp_path / "probes.jsonl").write_text("\n".join(map(json.dumps, [{"what": "ready"}, *told])) + "\n")
    assert (await probes.longest_turns(1))["turns"] == 400
