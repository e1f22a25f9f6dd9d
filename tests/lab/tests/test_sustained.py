"""Work on a device that is kept at it, tried on the emulated engine, whose clock never falls."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans.sustained import Row, table


def test_every_shape_is_measured_after_every_time_at_work(tmp_path):
    words = "--model llama-8b --arm emulator:auto --warm-s 1 0 --out o --work m"
    command = [*command_of("sustained"), *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "o" / "llama-8b.sustained.json").read_text())
    assert len({(row["what"], row["sms"]) for row in rows}) == 5
    rested = {(row["what"], row["sms"]): row["seconds"] for row in rows if row["warm_s"] == 0}
    for row in rows:
        assert row["seconds"] == pytest.approx(rested[row["what"], row["sms"]])
    assert len(done.stdout.splitlines()) == 2 + len(rows) == 12


def test_each_shape_is_compared_with_itself_rested():
    rows = [
        Row(what="prefill 1024", sms=132, warm_s=0.0, seconds=0.020, clock_mhz=1980),
        Row(what="prefill 1024", sms=132, warm_s=1.0, seconds=0.025, clock_mhz=1590),
    ]
    assert table(rows).splitlines()[-1] == "| prefill 1024 | 132 | 1 s | 25.00 ms | 1.250 | 1590 MHz |"
