"""Measuring a model, tried on the emulated engine."""

import json
import subprocess

from experiments import command_of


def test_profile_predictors_and_unseen_shapes_are_written_when_an_engine_is_measured(tmp_path):
    words = "--model llama-8b --arm emulator:auto --budget-s 20 --check-s 10 --sustained --out o --work m"
    command = [*command_of("measure"), *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken off: no" in done.stdout
    assert "  unseen " in done.stdout
    profile, predictors, checks = (
        json.loads((tmp_path / "o" / f"llama-8b.{name}.json").read_text())
        for name in ("profile", "predictors", "check")
    )
    assert predictors["solo_run"] == profile["solo_run"]
    assert len(checks) > 0
    assert not list((tmp_path / "o").glob("campaign-*"))
    sustained = json.loads((tmp_path / "o" / "llama-8b.sustained.json").read_text())
    assert {row["warm_s"] for row in sustained} == {0.0, 0.05, 0.2, 1.0, 3.0}


def test_the_reason_is_one_line_when_the_engine_does_not_start(tmp_path):
    words = "--model llama-8b --arm emulator:auto --start-s 0.1 --out o --work m"
    command = [*command_of("measure"), *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED: ")
    assert "Traceback" not in done.stderr
