"""Servers that start ahead: who waits at the gate, when it opens, and what follows when one fails."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from gpu_plans import matrix
from gpu_servers import ahead, runner
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.daemon.bench.load.workload import Cell, Request
from pdmuxd.daemon.bench.results import Run, append_result
from pdmuxd.daemon.bench.runner import answers
from pdmuxd.daemon.bench.servers.server import ServerError

CHILDREN = """
import multiprocessing, pathlib, sys, time

def child(name):
    pathlib.Path(name).touch()

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    first, second = (spawn.Process(target=child, args=(name,)) for name in ("first", "second"))
    first.start()
    while not pathlib.Path("gate.0").exists():
        time.sleep(0.01)
    second.start()
    second.join()
    waited = not pathlib.Path("first").exists() and first.is_alive()
    pathlib.Path("gate").touch()
    first.join()
    print("waited", waited, "ran", pathlib.Path("first").exists())
"""


@pytest.fixture
def sglang(tmp_path):
    """As much of SGLang as is imported ahead."""
    folder = tmp_path / "site" / "sglang" / "srt" / "managers"
    folder.mkdir(parents=True)
    (folder / "scheduler.py").write_text("")
    return tmp_path / "site"


def test_a_scheduler_waits_until_the_gate_opens_and_other_children_do_not(tmp_path, sglang):
    (tmp_path / "main.py").write_text(CHILDREN)
    gate = ahead.Gate(path=tmp_path / "gate")
    environment = gate.environment(os.environ | {"PYTHONPATH": str(sglang)}, tp_size=1)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "waited True ran True\n"


def test_a_site_is_set_up_as_ever_when_a_server_starts_ahead(tmp_path, sglang):
    (sglang / "sitecustomize.py").write_text("import os\nos.environ['SET_UP'] = __file__\n")
    gate = ahead.Gate(path=tmp_path / "gate")
    environment = gate.environment(os.environ | {"PYTHONPATH": str(sglang)}, tp_size=1)
    code = "import os; print(os.environ['SET_UP'])"
    told = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True, timeout=60)
    assert told.strip() == str(sglang / "sitecustomize.py")


def test_a_server_is_not_held_back_when_it_has_no_gate(tmp_path):
    code = "import sys; print('sitecustomize' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ahead.GATE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


async def test_the_gate_opens_when_the_gpus_memory_is_free(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {tmp_path}/used\necho 500 >{tmp_path}/used\necho x >>{tmp_path}/asked\n")
    smi.chmod(0o700)
    (tmp_path / "used").write_text("120000\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    gate = ahead.Gate(path=tmp_path / "gate")
    await gate.open()
    assert gate.path.exists()
    assert (tmp_path / "asked").read_text() == "x\nx\n"


def test_of_several_gpus_the_fullest_counts(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 7\necho 1024\n")
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert ahead.used_bytes() == 2**30


def test_only_the_gpus_count_that_the_process_may_use(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho $@ >{tmp_path}/asked\necho 7\n")
    (tmp_path / "nvidia-smi").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert ahead.used_bytes() == 7 * 2**20
    assert (tmp_path / "asked").read_text().endswith("-i 3\n")


class Failing(runner.Runner):
    """Its servers fail, and it notes how each was started."""

    def __init__(self, options):
        super().__init__(options)
        self.served = []

    async def _serve(self, runs, following):
        self.served.append("ahead" if self._servers.is_ahead else "anew")
        self._servers._next = None
        raise ServerError("no")


@pytest.fixture
def failing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Failing(matrix.options_of(["--cpu"]))


RUN = Run(
    model="llama-8b",
    arm=Arm(name="stock"),
    cell=Cell(workload="conv", rate=1.0),
    seed=1,
    tbt_ms=None,
    judged_ms=(50.0,),
)
REQUEST = Request(at_s=0.0, input_tokens=9, new_tokens=9, output_tokens=9, blocks=("a",))


async def test_a_server_is_started_anew_when_it_failed_ahead(failing):
    failing._servers._next = (RUN.server, None, None)
    await failing._group([RUN], None)
    assert failing.served == ["ahead", "anew"]
    assert not failing._servers._may_be_ahead
    assert failing.failed == ["stock"]


async def test_a_server_is_not_tried_again_when_it_failed(failing):
    await failing._group([RUN], None)
    await failing._group([RUN], None)
    assert failing.served == ["anew"]
    assert failing.left == 2


class Wedged(Failing):
    """Its server does one run, and then no more."""

    async def _serve(self, runs, following):
        self.served.append(runs[0].seed)
        if len(self.served) == 1:
            self._served.add(runs[0].server)
            append_result(self._options.results, {"key": runs[0].key})
        raise ServerError("no request had a token")


async def test_a_server_that_failed_between_runs_is_started_anew_for_the_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wedged = Wedged(matrix.options_of(["--cpu"]))
    await wedged._group([RUN, replace(RUN, seed=2), replace(RUN, seed=3)], None)
    assert wedged.served == [1, 2], "a server that does nothing is not tried for ever"
    assert wedged.left == 2
    assert wedged._servers._may_be_ahead, "it had served: to be started ahead was not what it failed of"


def test_a_server_is_started_ahead_when_its_imports_just_fit_into_what_is_before_it(failing):
    following = replace(RUN, arm=Arm(name="chunk-512"))
    due = [failing._is_worth_it(following, behind=[RUN] * left) for left in (4, 3, 2, 1)]
    assert due == [False, False, True, True]


def test_a_server_that_gives_no_token_is_no_server_to_measure():
    silent, late = Seen(REQUEST, outcome="cut"), Seen(REQUEST, tokens=1, outcome="cut")
    answers([silent, late])
    with pytest.raises(ServerError, match="no request had a token, the first: cut"):
        answers([silent, silent])
