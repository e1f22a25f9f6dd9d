"""The probes of `python tests/lab micro` inside a real SGLang, whose insides they reach into."""

import json
import subprocess

from sglang_processes import environment

from experiments import LAB


def test_every_probe_finds_something_on_a_real_sglang(python, tmp_path):
    words = "--cpu --model tiny --cell decode:2 --policies muxwise --prefill-tokens 16,32 --drain-s 90"
    command = [
        str(python),
        *("-P", str(LAB), "micro"),
        *words.split(),
        "--results",
        "r.jsonl",
        "--work",
        "m",
        "--log-dir",
        "l",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "r.jsonl").read_text())["found"]
    assert {one["of"] for one in found if one["what"] == "memory"} >= {"contexts", "activations"}
    assert all(one["step_s"] > 0 and one["host_s"] > 0 for one in found if one["what"] == "switch")
    assert {one["layers_at_once"] for one in found if one["what"] == "layerwise"} == {1, 4, 8}
    (turns,) = (one for one in found if one["what"] == "turns")
    assert turns["turns"] > 400
    assert 0 < turns["median_s"] <= turns["p99_s"] < 1
    assert turns["shares_s"]["policy_runtime.decide"] > 0
