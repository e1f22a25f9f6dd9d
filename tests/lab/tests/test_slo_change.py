"""How fast an SLO change is in force, on the real daemon with the emulated engine."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import slo_change
from gpu_plans.slo_edits import Edit, Watcher
from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.daemon.bench.load.workload import Request


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def measured(*words, folder):
    command = [*command_of("slo-change"), "--engine", "emulator"]
    command += ["--results", "r.jsonl", "--log-dir", "l", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def test_every_edit_is_in_force_and_nothing_is_lost_when_the_target_goes_to_and_fro(tmp_path):
    for duration_s in ("9", "90"):  # an edit that comes after the last request is in no decision
        done = measured("--duration-s", duration_s, "--edits", "2", "--drain-s", "60", folder=tmp_path)
        assert done.returncode in (0, 3), done.stderr  # how long it took is the machine's business
        found = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[-1])
        if all(edit["decided_s"] for edit in found["edits"]):
            break
    assert [edit["tbt_ms"] for edit in found["edits"]] == [500.0, 50.0]
    assert all(edit["in_force_s"] > 0 and edit["decided_s"] > 0 for edit in found["edits"])
    assert found["requests"] > 20
    assert found["lost"] == 0
    assert "seen in a decision: 2 of 2 edits" in done.stdout


def test_the_reason_is_one_line_when_the_daemon_does_not_start(tmp_path):
    done = measured("--policy", "nonsense", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED: ")
    assert "nonsense" in done.stdout
    assert "Traceback" not in done.stderr


def test_equal_targets_are_refused_when_they_are_given(tmp_path):
    done = measured("--targets-ms", "50,50", folder=tmp_path)
    assert done.returncode == 2
    assert "two different targets" in done.stderr


def found(*, decided_s=0.2, outcome="done", restarts=0):
    request = Request(at_s=0.0, input_tokens=9, new_tokens=9, output_tokens=9, blocks=("a",))
    edit = Edit(tbt_ms=50.0, sent_s=0.0, version=2, in_force_s=0.1, decided_s=decided_s)
    return slo_change.result(
        slo_change.options_of([]), [Seen(request, outcome=outcome)], [edit], {"restarts": restarts}
    )


def test_the_aim_is_met_when_edits_were_quick_and_nothing_was_lost():
    assert slo_change.is_met(found())


@pytest.mark.parametrize(
    "what",
    [{"decided_s": 1.1}, {"decided_s": None}, {"outcome": "cut"}, {"outcome": "error"}, {"restarts": 1}],
)
def test_the_aim_is_missed_when_one_thing_is_wrong(what):
    assert not slo_change.is_met(found(**what))


def watcher_and_edit(tbt_ms):
    watcher = Watcher(50.0)
    edit = Edit(tbt_ms=tbt_ms, sent_s=0.0)
    watcher.watch(edit)
    return watcher, edit


@pytest.mark.parametrize(
    ("tbt_ms", "slack_ms", "tells"),
    [
        (500.0, 300.0, True),
        (500.0, 20.0, False),
        (50.0, 20.0, True),
        (50.0, 300.0, False),
        (50.0, -5.0, True),
        (500.0, None, False),
    ],
)
def test_a_decision_tells_of_an_edit_when_only_its_target_explains_the_slack(tbt_ms, slack_ms, tells):
    watcher, edit = watcher_and_edit(tbt_ms)
    watcher._decided(1.0, slack_ms)
    assert (edit.decided_s is not None) == tells
