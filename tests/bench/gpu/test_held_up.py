"""What holds a scheduler up: it is written down by itself, in schedulers alone, and summed up by place."""

import os
import subprocess
import sys

import pytest
from held_up import places, watched

SLOW = """
import pathlib, sys, time

def waits_long():
    time.sleep(0.05)

def is_quick():
    time.sleep(0.001)

def is_written():
    return any("waits_long" in file.read_text() for file in pathlib.Path("stalls").glob("*.stalls"))

for number in range(4 if "detokenizer" in sys.argv[1] else 200):
    waits_long()
    is_quick()
    if is_written():
        break
"""


@pytest.mark.parametrize(("title", "seen"), [("sglang::scheduler", True), ("sglang::detokenizer", False)])
def test_where_a_scheduler_stood_is_known_when_it_is_watched(tmp_path, title, seen):
    (tmp_path / "slow.py").write_text(SLOW)
    environment = watched(os.environ, tmp_path / "stalls")
    command = [sys.executable, "slow.py", title]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = places(tmp_path / "stalls", frames=1, after_s=0.0)
    waits = [place for where, place in found.items() if ":waits_long:" in where]
    assert bool(waits) is seen
    if seen:
        assert waits[0].longest_s > 0.02
        assert waits[0].ran_s < waits[0].total_s, "it slept"


def test_other_places_are_rows_of_their_own_and_the_start_is_left_out(tmp_path):
    (tmp_path / "1.stalls").write_text(
        "1.0\t0.020\t0.001\ta.py:f:1 < b.py:g:2\n"
        "2.0\t0.030\t0.002\ta.py:f:1 < c.py:h:3\n"
        "3.0\t0.040\t0.003\ta.py:f:1 < c.py:h:3\n"
    )
    assert {where: place.count for where, place in places(tmp_path, 2, 0.0).items()} == {
        "a.py:f:1 < b.py:g:2": 1,
        "a.py:f:1 < c.py:h:3": 2,
    }
    assert places(tmp_path, 1, 1.5)["a.py:f:1"].total_s == pytest.approx(0.07)


def test_the_path_of_a_server_that_is_started_ahead_holds_the_folder_once(tmp_path):
    once = watched({"PYTHONPATH": "/site"}, tmp_path)
    assert watched(once, tmp_path)["PYTHONPATH"] == once["PYTHONPATH"]
