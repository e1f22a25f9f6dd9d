"""What holds a host up: it is written down by the processes that tokens pass, and summed up by place."""

import os
import subprocess
import sys

import pytest

from experiments import LAB
from gpu_servers.ahead import watched
from gpu_servers.stall_trace import places

SLOW = """
import pathlib, sys, time

def waits_long():
    time.sleep(0.05)

def is_quick():
    time.sleep(0.001)

def is_written():
    return any("waits_long" in file.read_text() for file in pathlib.Path("stalls").glob("*.stalls"))

for number in range(200):
    waits_long()
    is_quick()
    if is_written():
        break
"""


BUSY = """
import pathlib, time

def recv_pyobj():
    time.sleep(0.01)

def works():
    end_s = time.perf_counter() + 0.04
    while time.perf_counter() < end_s:
        pass

def is_written():
    return any("works" in file.read_text() for file in pathlib.Path("stalls").glob("*.stalls"))

for number in range(400):
    recv_pyobj()
    works()
    if number % 20 == 0 and is_written():
        break
"""


def found_by(folder, program, title):
    (folder / "program.py").write_text(program)
    environment = watched(os.environ, folder / "stalls")
    command = [sys.executable, "program.py", title]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return places(folder / "stalls", frames=1, after_s=0.0)


def test_where_a_scheduler_stood_is_known_when_it_is_watched(tmp_path):
    found = found_by(tmp_path, SLOW, "sglang::scheduler")
    waits = [place for where, place in found.items() if "scheduler: program.py:waits_long:" in where]
    assert waits[0].longest_s > 0.02
    assert waits[0].ran_s < waits[0].total_s, "it slept"


@pytest.mark.parametrize(
    ("title", "role"), [("sglang::detokenizer", "detokenizer"), ("pdmuxd.engine.sglang", "front")]
)
def test_work_without_a_pause_is_known_of_a_process_that_waits_for_what_comes(tmp_path, title, role):
    found = found_by(tmp_path, BUSY, title)
    works = [place for where, place in found.items() if where.startswith(f"{role}: program.py:works:")]
    assert works[0].longest_s > 0.02
    assert not [where for where in found if "recv_pyobj" in where], "waiting is no work"


def test_nothing_is_written_of_a_process_that_passes_no_tokens_on(tmp_path):
    assert found_by(tmp_path, SLOW.replace("range(200)", "range(4)"), "something else") == {}


def test_the_client_is_watched_when_it_asks_for_that(tmp_path):
    program = f"import pathlib, sys\nsys.path.append({str(LAB)!r})\nfrom gpu_servers import stall_trace\n"
    program += "stall_trace.watch_client(pathlib.Path('stalls'))\n" + BUSY
    (tmp_path / "client.py").write_text(program)
    done = subprocess.run([sys.executable, "client.py"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert any(where.startswith("client: client.py:works:") for where in places(tmp_path / "stalls", 1, 0.0))


def test_other_places_are_rows_of_their_own_and_the_start_is_left_out(tmp_path):
    (tmp_path / "scheduler-1.stalls").write_text(
        "1.0\t0.020\t0.001\ta.py:f:1 < b.py:g:2\n"
        "2.0\t0.030\t0.002\ta.py:f:1 < c.py:h:3\n"
        "3.0\t0.040\t0.003\ta.py:f:1 < c.py:h:3\n"
    )
    assert {where: place.count for where, place in places(tmp_path, 2, 0.0).items()} == {
        "scheduler: a.py:f:1 < b.py:g:2": 1,
        "scheduler: a.py:f:1 < c.py:h:3": 2,
    }
    assert places(tmp_path, 1, 1.5)["scheduler: a.py:f:1"].total_s == pytest.approx(0.07)


def test_the_path_of_a_server_that_is_started_ahead_holds_the_folder_once(tmp_path):
    once = watched({"PYTHONPATH": "/site"}, tmp_path)
    assert watched(once, tmp_path)["PYTHONPATH"] == once["PYTHONPATH"]
