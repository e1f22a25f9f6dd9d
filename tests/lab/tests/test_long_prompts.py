"""Long prompts among short ones, tried on the emulated engine; when it counts as passed."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import long_prompts


def tried(folder, *words):
    command = [*command_of("long-prompts"), "--engine", "emulator", "--duration-s", "3"]
    command += ["--results", "r.jsonl", "--work", "m", "--log-dir", "l", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def test_a_long_prompt_is_served_among_short_ones(tmp_path):
    done = tried(tmp_path, "--policies", "static:96,36", "--tokens", "4000")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = json.loads((tmp_path / "r.jsonl").read_text())["runs"]
    assert (run["tokens"], set(run["outcomes"]), run["errors"]) == (4000, {"done"}, [])
    assert run["ttft_s"] > 0
    assert any(name.startswith("split/") for name in run["steps"])


def test_lengths_are_asked_for_when_the_engine_has_no_limit(tmp_path):
    done = tried(tmp_path)
    assert (done.returncode, "give --tokens" in done.stdout) == (1, True)


def test_the_limit_is_what_the_engine_said_last(tmp_path):
    log = tmp_path / "engine.log"
    said = "pdmuxd: prompts of more than {} new tokens are prefilled in chunks, for the sake of memory\n"
    log.write_text(said.format(16384) + "other words\n" + said.format(119012))
    assert long_prompts.limit_in(log) == 119012
    log.write_text("other words\n")
    assert long_prompts.limit_in(log) is None


GOOD = {"outcomes": {"done": 61}}


@pytest.mark.parametrize(
    ("runs", "met"),
    [
        ([GOOD, GOOD], True),
        ([GOOD, {"outcomes": {"done": 60, "cut": 1}}], False),
        ([GOOD, {"outcomes": {"done": 60, "error": 1}}], False),
        ([], False),
    ],
)
def test_it_passes_when_everyone_was_served(runs, met):
    assert long_prompts.is_met({"runs": runs}) is met
