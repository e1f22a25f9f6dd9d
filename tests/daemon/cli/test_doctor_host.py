"""`pdmuxd doctor --host`: what rate of tokens this host carries, from a scheduler's step to sockets."""

import json

import pytest
import uvloop
from typer.testing import CliRunner

from pdmuxd.daemon.cli.main import app
from pdmuxd.daemon.doctor import host_rate
from pdmuxd.daemon.doctor.findings import Verdict
from pdmuxd.daemon.doctor.host_peer import STEP_S, Stage
from pdmuxd.daemon.doctor.host_rate import HostRate, check_host, measure_host


@pytest.fixture
def short(monkeypatch):
    """Rates that any host carries, for a moment; however late they come."""
    monkeypatch.setattr(host_rate, "STREAMS", (2, 5))
    monkeypatch.setattr(host_rate, "STAGE_S", 0.2)
    monkeypatch.setattr(host_rate, "LATEST_S", 5.0)


def test_all_tokens_of_each_rate_come_through(short):
    told = []
    found = uvloop.run(measure_host(told.append))
    assert found.tokens_per_s == 5 / STEP_S
    assert 0 < found.cpu_s_per_token < 0.05
    assert [each.split()[0] for each in told] == ["100", "250"]


def test_the_rate_is_one_that_was_not_late(short, monkeypatch):
    monkeypatch.setattr(host_rate, "LATEST_S", 0.0)
    found = uvloop.run(measure_host())
    assert (found.tokens_per_s, found.late_at.tokens_per_s) == (0.0, 2 / STEP_S)
    assert check_host(found).detail.startswith("carries no rate that was tried; at 100 one step in ten came ")


def test_the_command_tells_it_as_a_finding(short):
    said = CliRunner().invoke(app, ["doctor", "--host", "--json"])
    findings = {each["check"]: each for each in json.loads(said.stdout)["findings"]}
    assert findings["host"]["detail"].startswith("carries 250 tokens/s, ")
    assert findings["host"]["verdict"] == "warn"


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (HostRate(20_000, 11e-6), Verdict.OK, "carries 20,000 tokens/s, 11 us of CPU each"),
        (
            HostRate(5_000, 27e-6, Stage(10_000, 0.0108)),
            Verdict.WARN,
            "at 10,000 one step in ten came 11 ms late",
        ),
        (None, Verdict.INFO, "could not be measured"),
    ],
)
def test_what_is_found_is_said_in_words(found, verdict, says):
    finding = check_host(found)
    assert finding.verdict is verdict
    assert says in finding.detail
    assert bool(finding.hint) == (verdict is Verdict.WARN)
