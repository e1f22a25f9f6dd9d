"""What a flood costs the tenant beside it: the plan's own parts; the whole is a slow test."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import flood
from pdmuxd.daemon.bench.servers.server import ServerError

STEPS = {"idle": 1, "split best_fit": 3, "fused predictions_wrong": 620}


def part(good_ratio, errors=0):
    return {
        "good_ratio": good_ratio,
        "errors": errors,
        "why": ["429: full"] if errors else [],
        "requests": 10,
        "ttft_p50_ms": 1.0,
        "ttft_p99_ms": 2.0,
        "input_tps": 3.0,
    }


def found(alone, beside, errors=0, restarts=0):
    parts = {"alone": part(alone), "beside": part(beside, errors), "flood": part(0.1, 5)}
    told = {"predicts_with": "profile 1 (h200-llama-8b, version 1)", "steps": {"beside": STEPS}}
    return {"parts": parts, "restarts": restarts, "calm": "chat:1", "flood": "chat:10", **told}


@pytest.mark.parametrize(
    ("measured", "is_met"),
    [
        (found(1.0, 0.981), True),
        (found(1.0, 0.97), False),
        (found(0.9, 0.95), True),
        (found(1.0, 1.0, errors=1), False),
        (found(1.0, 1.0, restarts=1), False),
        (found(None, 1.0), False),
        (found(0.0, 0.0), False),
    ],
)
def test_two_points_and_no_failure_are_allowed_when_it_is_judged(measured, is_met):
    assert flood.is_met(measured) is is_met


def test_lines_say_what_the_flood_cost_and_why_it_was_refused_when_they_are_printed():
    said = flood.lines(found(1.0, 0.97))
    assert "429: full" in said[2]
    assert said[3].endswith(
        "(h200-llama-8b, version 1): fused predictions_wrong 620, split best_fit 3, idle 1"
    )
    assert said[-1] == "the flood cost 3.0 points (at most 2 wanted); restarts 0"
    assert flood.lines(found(0.1, 0.1))[-1].startswith("that says little: alone the calm tenant")


def test_a_load_that_cannot_be_generated_is_refused_by_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        flood.options_of(["--calm", "conv:3"])
    assert ended.value.code == 2
    assert "conv:3" in capsys.readouterr().err


def test_a_load_without_requests_is_refused_before_anything_is_started(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flood, "serving", None)
    assert flood.main(["--calm", "chat:0.001", "--duration-s", "2"]) == 1
    assert "FAILED: chat:0.001: no request arrives within 2 s" in capsys.readouterr().out


def test_both_parts_are_shortened_alike_rather_than_cut_off(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = flood.options_of(["--duration-s", "60", "--flood-s", "120", "--drain-s", "6"])
    assert flood.within(options, float("inf")) is options
    assert flood.within(options, 206.0) is options
    half = flood.within(options, 115.0)
    assert (half.duration_s, half.flood_s) == (30.0, 60.0)
    assert "both parts are shortened to 50%" in capsys.readouterr().out
    with pytest.raises(ServerError, match="30 s are left, too few for a flood"):
        flood.within(options, 30.0)


@pytest.mark.slow
def test_both_tenants_are_served_when_the_daemon_is_real(tmp_path):
    command = [*command_of("flood"), "--engine", "emulator", "--duration-s", "3", "--flood-s", "4"]
    command += ["--calm", "chat:3", "--flood", "chat:30", "--drain-s", "60", "--results", "r.jsonl"]
    done = subprocess.run(
        [*command, "--log-dir", "l"], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert done.returncode in (0, 3), done.stderr  # how good it was is the machine's business
    first, kept = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert first["parts"]["alone"] == kept["parts"]["alone"], "it is kept before the flood begins"
    assert kept["parts"]["alone"]["requests"] > 2
    assert kept["parts"]["flood"]["requests"] > 50
    assert kept["parts"]["beside"]["errors"] == 0
    assert "engine's own" in kept["predicts_with"]
    assert sum(kept["steps"]["alone"].values()) > 0
    assert sum(kept["steps"]["beside"].values()) > 0
