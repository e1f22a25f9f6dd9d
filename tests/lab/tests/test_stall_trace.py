"""What holds a host up: it is written down by the processes that tokens pass, and summed up by place."""

import os
import subprocess
import sys

import pytest

from experiments import LAB
from gpu_servers.ahead import watched
from gpu_servers.stall_trace import places

LOCKSTEP = """
import _thread, time
from in_sglang.gate import stalls

class Lockstep:
    # The watcher's clock: it looks when the program lets it, and the program goes on when it has looked.

    def __init__(self):
        self.now_s = time.perf_counter()
        self.look, self.looked = _thread.allocate_lock(), _thread.allocate_lock()
        self.look.acquire()
        self.looked.acquire()

    def perf_counter(self):
        return self.now_s

    def sleep(self, time_s):
        self.looked.release()
        self.look.acquire()
        self.now_s += time_s

clock = stalls.time = Lockstep()
clock.looked.acquire()  # it sleeps by the machine's clock until then
"""
"""How late the watcher is, on a machine that is at work, must not matter. Locks are taken in the functions
themselves: whatever they called would be the innermost."""

SLOW = (
    LOCKSTEP
    + """
def waits_long(looks):
    for _ in range(looks):
        clock.look.release()
        clock.looked.acquire()

def is_quick():
    clock.look.release()
    clock.looked.acquire()

for number in range(3):
    waits_long(25)
    is_quick()
"""
)

BUSY = (
    LOCKSTEP
    + """
def recv_pyobj():
    for look in range(5):
        clock.look.release()
        clock.looked.acquire()

def works():
    for look in range(20):
        clock.look.release()
        clock.looked.acquire()

for number in range(3):
    recv_pyobj()
    works()
recv_pyobj()
"""
)


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
    assert waits[0].count == 3
    assert waits[0].longest_s == pytest.approx(0.05, abs=0.003)
    assert not [where for where in found if "is_quick" in where]
    assert waits[0].ran_s < waits[0].total_s, "it slept"


@pytest.mark.parametrize(
    ("title", "role"), [("sglang::detokenizer", "detokenizer"), ("pdmuxd.engine.sglang", "front")]
)
def test_work_without_a_pause_is_known_of_a_process_that_waits_for_what_comes(tmp_path, title, role):
    found = found_by(tmp_path, BUSY, title)
    works = [place for where, place in found.items() if where.startswith(f"{role}: program.py:works:")]
    assert works[0].count == 3
    assert works[0].longest_s == pytest.approx(0.04, abs=0.003)
    assert not [where for where in found if "recv_pyobj" in where], "waiting is no work"


def test_nothing_is_written_of_a_process_that_passes_no_tokens_on(tmp_path):
    assert found_by(tmp_path, SLOW, "something else") == {}


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
