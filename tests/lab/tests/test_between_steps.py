"""Traces of the device: what lies between two fused steps."""

import gzip
import json

import pytest

from gpu_plans import between_steps


def event(category, name, begin_us, end_us, **args):
    return {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": end_us - begin_us, "args": args}


def step(kind, graph, launched_us, begin_us, end_us):
    """A step's annotation, the launch of its graph, and two kernels of that, on stream 25."""
    middle_us = (begin_us + end_us) / 2
    return [
        event("user_annotation", f"step[{kind} bs=2]", launched_us - 5, launched_us + 5),
        event("cuda_runtime", "cudaGraphLaunch", launched_us, launched_us + 2, correlation=graph),
        event("kernel", "product", begin_us, middle_us, correlation=graph, stream=25),
        event("kernel", "product", middle_us, end_us, correlation=graph, stream=25),
    ]


def small(name, begin_us, end_us, stream):
    return event("kernel", name, begin_us, end_us, correlation=900, stream=stream)


def written(path, *events):
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [{"ph": "M"}, *events]}).encode()))
    return str(path)


BETWEEN = (
    small("head", 1000, 1300, 25),
    small("Memcpy DtoH (Device -> Pinned)", 1305, 1310, 45),
    small("cat", 1320, 1400, 37),
    small("copy", 1410, 1500, 25),
)


def test_the_time_between_two_fused_steps_is_told_by_its_parts(tmp_path, capsys):
    path = written(
        tmp_path / "t.json.gz",
        *step("MIXED", 1, 10, 100, 1000),
        *BETWEEN,
        *step("MIXED", 2, 600, 1510, 2500),
        *step("DECODE", 3, 1600, 2600, 2700),
    )
    assert between_steps.main([path]) == 0
    said = capsys.readouterr().out
    # Idle for 5, 10 and 10 us between small work, 10 before the second graph, 100 before the third.
    assert "t.json.gz: idle 0.1 of 3 ms, 0.1 of it waiting" in said
    assert "1 times: p50 510 us" in said
    assert "results 320, forming 80, inputs 110" in said


def test_only_waits_that_the_host_may_have_made_count_as_waiting(tmp_path):
    work = (small("a", 0, 10, 1), small("b", 15, 20, 1), small("c", 80, 90, 1))
    found = between_steps.read(tmp_path / written(tmp_path / "t.json.gz", *work))
    assert (found.idle_ms, found.waiting_ms, found.between) == (0.065, 0.06, ())


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "packed"])
@pytest.mark.parametrize("content", [b"[]", b'{"traceEvents": []}'])
def test_a_file_that_is_no_trace_is_named(tmp_path, capsys, content, pack):
    (tmp_path / "x").write_bytes(pack(content))
    assert between_steps.main([str(tmp_path / "x")]) == 2
    assert "x: no trace of a device" in capsys.readouterr().err
