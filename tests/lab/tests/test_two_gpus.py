"""Aborts and policy changes under load, tried on the emulated engine; when it counts as passed."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import two_gpus


def test_an_engine_stays_up_under_aborts_and_policy_changes(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps({"conv": [[100 + i, 20] for i in range(500)]}))
    words = "--engine emulator --cell conv:10 --duration-s 4 --drain-s 20 --change-s 0.5 --leave-ratio 0.4"
    command = [*command_of("two-gpus"), *words.split(), "--policies", "auto,static:96,36"]
    command += ["--traces", "traces.json", "--results", "r.jsonl", "--work", "m", "--log-dir", "l"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "r.jsonl").read_text())
    assert found["changes"] > 2
    assert found["outcomes"].keys() == {"done", "left"}
    assert "idle at the end" in done.stdout


def test_a_refused_policy_is_told_when_the_engine_says_no(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps({"conv": [[100 + i, 20] for i in range(500)]}))
    words = "--engine emulator --cell conv:10 --duration-s 1 --drain-s 10"
    command = [*command_of("two-gpus"), *words.split(), "--policies", "static:1,2"]
    command += ["--traces", "traces.json", "--results", "r.jsonl", "--work", "m", "--log-dir", "l"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 3
    assert "REFUSED: the engine refused static:1,2" in done.stdout


GOOD = {
    "outcomes": {"done": 80, "left": 20},
    "changes": 9,
    "refused": "",
    "was_idle": True,
}


def test_it_passes_when_everything_ended_as_it_should():
    assert two_gpus.is_met(GOOD)


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcomes": {"done": 80, "left": 20, "cut": 1}},
        {"outcomes": {"done": 80, "left": 20, "error": 1}},
        {"outcomes": {"done": 100}},
        {"changes": 1},
        {"refused": "no"},
        {"was_idle": False},
    ],
)
def test_it_fails_when_one_thing_is_wrong_or_was_not_tried(wrong):
    assert not two_gpus.is_met(GOOD | wrong)
