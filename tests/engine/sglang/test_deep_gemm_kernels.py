"""Which of DeepGEMM's kernels are compiled ahead, by how many processes, and what is kept of it."""

import json
import subprocess
import threading
from types import SimpleNamespace

import pytest

from pdmuxd.engine.sglang.internals import deep_gemm_kernels as ahead
from pdmuxd.engine.sglang.internals.deep_gemm_sms import is_worth

SHAPES = {(6144, 4096), (4096, 4096)}
GIB = 2**30


def group(prefill, decode):
    return SimpleNamespace(prefill_sms=prefill, decode_sms=decode)


GROUPS = (group(132, 0), group(116, 16), group(52, 80), group(0, 132))
ALL_SMS = {132, 116, 80, 52, 16}


class Processes:
    """Stands for `subprocess.run`: the first of them go on until `together` run beside each other."""

    def __init__(self):
        self.codes, self.said, self.too_slow = {}, "", set()
        self.begun, self.running, self.most, self.together = [], 0, 0, 1
        self.lock, self.met = threading.Lock(), threading.Event()

    def __call__(self, words, *, timeout, **_):
        work = json.loads(words[-1])
        with self.lock:
            self.begun.append(work)
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running >= self.together:
                self.met.set()
        assert self.met.wait(30)
        with self.lock:
            self.running -= 1
        if work["sms"] in self.too_slow:
            raise subprocess.TimeoutExpired(words, timeout)
        return SimpleNamespace(returncode=self.codes.get(work["sms"], 0), stderr=self.said)

    def sms(self, since=0):
        return sorted((work["sms"] for work in self.begun[since:]), reverse=True)


@pytest.fixture
def processes(monkeypatch):
    made = Processes()
    monkeypatch.setattr(ahead.subprocess, "run", made)
    return made


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    made = tmp_path / "cache" / "deep_gemm"
    monkeypatch.setenv(ahead.CACHE, str(made))
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 16)
    return made


def run(groups=GROUPS, shapes=SHAPES, free_bytes=20 * GIB, version="0.2.3"):
    wanted = [*ahead.works(groups, shapes, 132)]
    return ahead.compile_ahead(wanted, version=version, gpu=1, free_bytes=free_bytes)


def test_each_number_of_sms_is_compiled_for_once_with_the_rows_that_are_told_of_it(processes):
    assert run() == ALL_SMS
    assert {work["gpu"] for work in processes.begun} == {1}
    rows = {work["sms"]: work["rows"] for work in processes.begun}
    assert processes.sms() == [132, 116, 80, 52, 16]
    for sms, launched in rows.items():
        assert launched == [count for count in ahead.ROWS if sms == 132 or is_worth(sms, count)]
    assert {sms: launched[-1] for sms, launched in rows.items()} == {
        132: 8192,
        116: 8192,
        80: 128,
        52: 128,
        16: 128,
    }
    assert all(work["shapes"] == [[4096, 4096], [6144, 4096]] for work in processes.begun)


def test_what_was_compiled_is_not_compiled_again_unless_deepgemm_changes(processes):
    run()
    assert run() == ALL_SMS
    assert len(processes.begun) == 5
    assert run(groups=(*GROUPS, group(100, 32))) == ALL_SMS | {100, 32}
    assert processes.sms(since=5) == [100, 32]
    run(version="0.3.0")
    assert len(processes.begun) == 12


def test_other_weights_are_compiled_for_too(processes):
    run()
    run(shapes={(1024, 512)})
    assert [work["shapes"] for work in processes.begun[5:]] == [[[1024, 512]]] * 5


def test_a_partition_with_an_odd_number_of_sms_takes_the_kernels_of_the_even_one_below(processes):
    assert run(groups=(group(97, 35),)) == {132, 96, 34}
    assert {work["sms"]: work["rows"][-1] for work in processes.begun} == {132: 8192, 96: 128, 34: 128}


@pytest.mark.parametrize(
    ("free_bytes", "cores", "together"),
    [(20 * GIB, 16, 5), (5 * GIB // 2, 16, 2), (5 * GIB // 4, 16, 1), (20 * GIB, 3, 3)],
)
def test_as_many_processes_run_at_once_as_memory_and_cores_hold(
    processes, monkeypatch, free_bytes, cores, together
):
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: cores)
    processes.together = together
    assert run(free_bytes=free_bytes) == ALL_SMS
    assert processes.most == together


def test_without_memory_for_one_no_partition_is_told_and_the_log_says_why(processes, caplog):
    assert run(free_bytes=10**8) == set()
    assert not processes.begun
    assert "takes 0.9 GB of GPU memory, and 0.1 are free" in caplog.text


def test_a_number_whose_process_fails_is_left_out_and_tried_again_at_the_next_start(processes, caplog):
    processes.codes[52], processes.said = 1, "Traceback\nRuntimeError: no nvcc\n"
    assert run() == ALL_SMS - {52}
    assert "not told of 52 SMs: compiling its kernels ended with 1: RuntimeError: no nvcc" in caplog.text
    processes.codes.clear()
    assert run() == ALL_SMS
    assert processes.sms(since=5) == [52]


def test_a_process_that_says_nothing_and_one_that_does_not_end_are_told(processes, caplog):
    processes.codes[80] = -9
    processes.too_slow.add(16)
    assert run() == ALL_SMS - {80, 16}
    assert "ended with -9: it said nothing" in caplog.text
    assert "not told of 16 SMs: compiling its kernels took more than 480 s" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "0.2.3", "done": 5}', '{"done": []}'])
def test_a_list_that_cannot_be_read_costs_a_compilation(processes, folder, text):
    folder.mkdir(parents=True)
    (folder / "pdmuxd-compiled.json").write_text(text)
    assert run() == ALL_SMS
    assert len(processes.begun) == 5


def test_no_partition_is_told_where_sglang_names_no_folder(processes, monkeypatch):
    monkeypatch.delenv(ahead.CACHE)
    assert run() == set()
    assert not processes.begun


def test_no_partition_is_told_where_the_folder_cannot_be_written(processes, folder, caplog):
    folder.parent.mkdir()
    folder.touch()
    assert run() == set()
    assert "kernels for partitions cannot be kept" in caplog.text
