"""Tables of steps' records."""

import gzip
import json

from gpu_plans import steps

COMMON = {"type": "iteration", "prefill_sms": 132, "decode_sms": 132, "predicted_decode_s": None}
FUSED = COMMON | {"mode": "fused", "reason": "fused_fits", "predicted_fused_s": 0.01}
ALONE = COMMON | {"mode": "fused", "reason": "decode_alone", "predicted_fused_s": None}


def written(path, *records):
    path.write_bytes(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    return str(path)


def test_steps_are_counted_by_kind_and_those_over_a_target_with_their_tokens(tmp_path, capsys):
    path = written(
        tmp_path / "r.jsonl.gz",
        *(FUSED | {"measured_step_s": 0.012, "decode_bs": 7},) * 3,
        FUSED | {"measured_step_s": 0.021, "decode_bs": 9},
        FUSED | {"measured_step_s": 0.05, "decode_bs": 0},
        ALONE | {"measured_step_s": 0.005, "decode_bs": 9},
        {"type": "request"},
    )
    assert steps.main([path, "--over-ms", "18.5"]) == 0
    said = capsys.readouterr().out
    assert "| fused, fused_fits, 132,132 | 5 | 12.0, 50.0 | 1.20, 1.20, 5.00 |" in said
    assert "| fused, decode_alone, 132,132 | 1 | 5.0, 5.0 | - |" in said
    assert "1 of 5 steps over 18.5 ms, with 9 tokens" in said


def test_what_passed_until_a_late_launch_shows_beside_what_decode_took(tmp_path, capsys):
    late = {"mode": "split", "reason": "best_fit", "predicted_fused_s": None, "predicted_decode_s": 0.01}
    took = {"measured_step_s": 0.03, "measured_decode_s": 0.012, "decode_bs": 4}
    assert steps.main([written(tmp_path / "r.jsonl.gz", COMMON | late | took)]) == 0
    assert "| 30.0, 30.0 | 3.00, 3.00, 3.00 | 1.20, 1.20, 1.20 |" in capsys.readouterr().out


def test_what_the_host_and_stalls_took_is_said_and_how_much_of_the_target_is_used(tmp_path, capsys):
    step = FUSED | {"measured_step_s": 0.02, "decode_bs": 4, "prefill_new_tokens": 100, "tbt_target_s": 0.025}
    path = written(
        tmp_path / "r.jsonl.gz",
        *(step | {"host_late_s": 0.0002},) * 196,
        *(step | {"host_late_s": 0.003},) * 3,
        step | {"host_late_s": 0.002, "measured_step_s": 0.06, "stall_s": 0.04},
        step | {"host_late_s": None, "prefill_new_tokens": 0, "measured_step_s": 0.005},
    )
    assert steps.main([path]) == 0
    said = capsys.readouterr().out
    took = 100 * (196 * 0.0002 + 3 * 0.003 + 0.002) / (199 * 0.02 + 0.06)
    assert "2.00% of 200 steps were delayed by the host (more than 1 ms; p99 " in said
    assert f"which took {took:.2f}% of their time; at most 1% of steps is aimed at" in said
    assert "1 of 201 steps with decode stalled, by 40 ms at most" in said
    assert "take 80% of the TBT target (p50), 80% (p99)" in said


def test_nothing_is_said_of_the_host_when_records_are_of_an_older_engine(tmp_path, capsys):
    step = ALONE | {"measured_step_s": 0.005, "decode_bs": 9}
    assert steps.main([written(tmp_path / "r.jsonl.gz", step)]) == 0
    assert "host" not in capsys.readouterr().out


def test_a_file_without_records_is_named(tmp_path, capsys):
    (tmp_path / "x").write_text("{}")
    assert steps.main([str(tmp_path / "x")]) == 2
    assert "x: no records of steps" in capsys.readouterr().err
