from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from traces import mooncake_line, mooncake_trace, native_line, write
from typer.testing import CliRunner, Result

from pdmuxd.daemon.cli import replay as command
from pdmuxd.daemon.cli.trace_options import parse_noise
from pdmuxd.engine.core.errors import PdmuxdError, PolicyError, ProfileError, SettingsError, TraceError
from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY
from pdmuxd.engine.emulator.profile import load_profile

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)
    command.register(app)
    return lambda *words: CliRunner().invoke(app, ["replay", *map(str, words)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return mooncake_trace(tmp_path / "trace.jsonl", 30)


def error(result: Result, kind: type[PdmuxdError]) -> str:
    assert isinstance(result.exception, kind), (result.output, result.exception)
    return str(result.exception)


def test_an_example_is_shown_when_help_is_asked_for(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert "Example: pdmuxd replay" in result.output


def test_table_json_and_report_agree_when_all_are_asked_for(
    invoke: Invoke, trace: Path, tmp_path: Path
) -> None:
    result = invoke(
        trace, "--policy", "muxwise", "--policy", "chunked:512", "--json", tmp_path / "r.json",
        "--html", tmp_path / "r.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    read = json.loads((tmp_path / "r.json").read_text())
    assert [p["policy"] for p in read["policies"]] == ["muxwise", "chunked:512"]
    assert read["trace"]["format"] == "mooncake"
    p50_ms = read["policies"][1]["metrics"]["ttft"]["p50_ms"]
    shown = f"{p50_ms:,.0f}" if p50_ms >= 100 else f"{p50_ms:.1f}"
    assert shown in next(line for line in result.output.splitlines() if "p50" in line).split()
    assert shown in (tmp_path / "r.html").read_text()


def test_the_default_policy_is_replayed_when_none_is_given(invoke: Invoke, trace: Path) -> None:
    result = invoke(trace)
    assert result.exit_code == 0
    assert DEFAULT_POLICY in result.output
    assert "measured: " in result.output


def test_the_same_numbers_come_out_when_the_printed_command_is_run_again(
    invoke: Invoke, tmp_path: Path
) -> None:
    ticking = mooncake_trace(tmp_path / "a trace.jsonl", 60, tick_ms=3000, rate_rps=4.0)
    out = tmp_path / "r.json"
    invoke(
        ticking, "--policy", "static:96,36", "--policy", "upstream", "--rate", "3.25", "--seed", "5",
        "--limit", "40", "--tbt-ms", "20", "--spread-ticks", "auto", "--sort", "--clip",
        "--json", out, "--no-progress",
    )  # fmt: skip
    first = json.loads(out.read_text())
    assert first["trace"]["tick_s"] == 3.0
    words = shlex.split(first["command"])
    assert words[:2] == ["pdmuxd", "replay"]
    again = invoke(*words[2:])
    assert again.exit_code == 0, again.output
    second = json.loads(out.read_text())
    assert second["command"] == first["command"]
    assert second["trace"] == first["trace"]
    assert [p["metrics"] for p in second["policies"]] == [p["metrics"] for p in first["policies"]]


def test_spreading_is_announced_when_ticks_are_found(invoke: Invoke, tmp_path: Path) -> None:
    ticking = mooncake_trace(tmp_path / "t.jsonl", 60, tick_ms=3000, rate_rps=4.0)
    assert "3-second ticks" in invoke(ticking).output
    assert "ticks" not in invoke(ticking, "--spread-ticks", "off").output
    assert "5-second ticks" in invoke(ticking, "--spread-ticks", "5").output


def test_the_line_is_named_when_the_trace_is_malformed(invoke: Invoke, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_line(), mooncake_line(output_length=0))
    assert error(invoke(path), TraceError).startswith(f"{path}:2: output_length: expected int >= 1")


def test_the_format_can_be_forced_when_detection_is_not_wanted(invoke: Invoke, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", native_line())
    assert "a Mooncake line is" in error(invoke(path, "--format", "mooncake"), TraceError)
    unknown = error(invoke(path, "--format", "parquet"), TraceError)
    assert unknown.startswith("unknown trace format 'parquet'; known are mooncake, azure, native")


@pytest.fixture
def small_pool(tmp_path: Path) -> Path:
    """A profile whose KV pool holds 1,000 tokens."""
    import msgspec

    small = replace(load_profile("h200-llama-8b"), kv_capacity_tokens=1000)
    path = tmp_path / "small.json"
    path.write_bytes(msgspec.json.encode({f: getattr(small, f) for f in small.__dataclass_fields__}))
    return path


def test_number_and_first_are_named_when_requests_do_not_fit(
    invoke: Invoke, tmp_path: Path, small_pool: Path
) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_line(), mooncake_line(1, 1500), mooncake_line(2, 2000))
    said = error(invoke(path, "--profile", small_pool), TraceError)
    assert said.startswith(f"{path}:2: 2 of 3 requests are longer than the KV pool of 1,000 tokens")
    dropped = invoke(path, "--profile", small_pool, "--drop-too-long")
    assert dropped.exit_code == 0
    assert "2 requests were left out" in dropped.output
    clipped = invoke(path, "--profile", small_pool, "--clip", "--json", tmp_path / "r.json")
    assert "2 requests were shortened" in clipped.output
    read = json.loads((tmp_path / "r.json").read_text())
    assert (read["trace"]["clipped"], read["trace"]["requests"]) == (2, 3)
    assert read["policies"][0]["metrics"]["finished"] == 3


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--rate", "1", "--rate-scale", "2"], "--rate and --rate-scale cannot be given together"),
        (["--drop-too-long", "--clip"], "--drop-too-long and --clip cannot be given together"),
        (["--spread-ticks", "sometimes"], "'sometimes' is not allowed; give auto, off, or seconds"),
        (["--spread-ticks", "-3"], "'-3' is not allowed"),
        (["--spread-ticks", "nan"], "'nan' is not allowed"),
        (["--policy", "upstream", "--policy", "upstream"], "--policy upstream is given twice"),
        (["--limit", "0"], "--limit"),
        (["--rate", "nan"], "--rate"),
        (["--tbt-ms", "0"], "--tbt-ms"),
        (["--attainment", "1"], "--attainment"),
        (["--noise", "8,6"], "'8,6' is not allowed; give bias from -50 to 100, scatter from 0 to 50"),
        (["--noise", "8,6,11"], "stalls from 0 to 10 percent"),
        (["--noise", "nan,6,0"], "'nan,6,0' is not allowed"),
        (["--noise", "8,6,30ms@0s"], "length and period of at most 60 s as in 30ms@1.6s"),
        (["--noise", "8,6,30ms@0.02s"], "'8,6,30ms@0.02s' is not allowed"),
        (["--noise", "8,6,30@1.6"], "'8,6,30@1.6' is not allowed"),
        (["--noise", "8,6,0.3,fused"], "'8,6,0.3,fused' is not allowed"),
        (["--noise", "8,6,0.3,fused@512=101"], "the bias of decode, fused or prefill alone, from a size on"),
        (["--noise", "8,6,0.3,splits=4"], "such as 8,6,0.3,fused@512=20,prefill=-10"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_usage_is_refused_when_an_option_is_out_of_range(
    invoke: Invoke, trace: Path, words: list[str], what: str
) -> None:
    result = invoke(trace, *words)
    assert result.exit_code == 2
    assert what in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "kind", "what"),
    [
        (["--policy", "fastest"], PolicyError, "unknown policy 'fastest'; known are"),
        (["--policy", "static:1,2"], PdmuxdError, "1,2"),
        (["--profile", "b300"], ProfileError, "unknown profile 'b300'"),
        (["--json", "no/such/dir/r.json"], SettingsError, "cannot be written"),
        (["--html", "."], SettingsError, "is a directory"),
    ],
)
def test_nothing_is_replayed_when_an_option_cannot_be_used(
    invoke: Invoke,
    trace: Path,
    words: list[str],
    kind: type[PdmuxdError],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "replay_policies", lambda *args: pytest.fail("it was replayed"))
    assert what in error(invoke(trace, *words), kind)


@pytest.mark.parametrize("policy", ["pla-spatial:2", "round-robin:2/chunked:512"])
def test_a_fleet_is_replayed_when_a_policy_asks_for_one(invoke: Invoke, trace: Path, policy: str) -> None:
    result = invoke(trace, "--policy", policy)
    assert result.exit_code == 0
    assert policy in result.output


def test_the_allowed_sizes_are_told_when_a_fleet_is_too_small(invoke: Invoke, trace: Path) -> None:
    error = invoke(trace, "--policy", "pla-spatial:1").exception
    assert isinstance(error, PolicyError)
    assert "give 2 to 64, as in pla-spatial:4" in str(error)


def test_no_word_is_broken_when_the_output_is_piped(invoke: Invoke, trace: Path) -> None:
    policies = ("muxwise", "static:96,36", "upstream", "prefill-first", "chunked:512")
    words = [word for policy in policies for word in ("--policy", policy)]
    lines = invoke(trace, *words).output.splitlines()
    # All policies side by side, and each note on a line of its own, however long.
    assert any(all(policy in line for policy in policies) for line in lines), lines


def test_stalls_may_be_given_as_a_length_and_a_period() -> None:
    noise = parse_noise("8,6,30ms@1.6s,fused=20")
    assert (noise.stall_ratio, noise.stall_s, noise.stall_every_s) == (0.0, 0.03, 1.6)
    assert noise == replace(parse_noise("8,6,0,fused=20"), stall_s=0.03, stall_every_s=1.6)
