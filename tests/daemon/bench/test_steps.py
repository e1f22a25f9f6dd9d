"""Tables of steps' records."""

import gzip
import json

from pdmuxd.daemon.bench.plans import steps

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


def test_a_file_without_records_is_named(tmp_path, capsys):
    (tmp_path / "x").write_text("{}")
    assert steps.main([str(tmp_path / "x")]) == 2
    assert "x: no records of steps" in capsys.readouterr().err
