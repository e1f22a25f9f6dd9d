"""A session: its command lines, what becomes of steps that fail, hang or lack something, and going on."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import is_running

from experiments import command_of
from gpu_plans import flood, matrix, measure, micro, slo_change, token_path, two_gpus
from gpu_servers.outcome import MISSED
from gpu_session import session
from gpu_session.checks import Checks
from gpu_session.place import Place, environment_of
from gpu_session.plan import PLANS, lanes
from gpu_session.processes import MARK, alone_in
from gpu_session.records import Ended, Records
from gpu_session.scale import SCALES
from gpu_session.step import Lane, Need, Step
from gpu_session.trial import tried
from gpu_session.work import Work
from pdmuxd.daemon.bench import arms
from pdmuxd.daemon.process.ports import PORTS

READS = {
    "micro": micro.options_of,
    "slo-change": slo_change.options_of,
    "measure": measure.options_of,
    "two-gpus": two_gpus.options_of,
    "matrix": matrix.options_of,
    "flood": flood.options_of,
    "token-path": token_path.options_of,
}
TRACES = {name: [[100 + i, 5] for i in range(500)] for name in ("conv", "code", "mooncake")}


@pytest.mark.parametrize("engine", SCALES)
@pytest.mark.parametrize("plan", PLANS)
def test_each_plan_reads_its_command_line_when_a_session_is_planned(tmp_path, monkeypatch, plan, engine):
    monkeypatch.chdir(tmp_path)
    place = Place(folder=tmp_path / "out", traces=tmp_path / "traces.json", start_s=100.0)
    for lane in tried(lanes(plan, SCALES[engine]), engine):
        for step in lane.steps:
            words = place.command(step, "gpu0", 500.0)
            assert words[:4] == command_of(step.plan)
            if step.keeps == "rows":  # needs PyTorch
                assert words[4:] == [*step.words, "--out", str(tmp_path / "out" / "kernels")]
                continue
            options = READS[step.plan](words[4:])
            assert options.start_s == 100.0
            assert not (step.fills_s or step.told_budget) or options.budget_s == 500.0
            assert not step.records or options.records == tmp_path / "out" / "records"


@pytest.mark.parametrize("plan", ["one", "two", "tp2", "profiles"])
def test_steps_that_do_not_fill_the_time_leave_most_of_it_when_half_an_hour_is_there(plan):
    for lane in lanes(plan, SCALES["gpu"]):
        assert sum(step.expected_s for step in lane.steps if not step.fills_s) < 1750.0 - 600.0


def test_half_an_hour_holds_all_of_serving_up_to_its_profile_and_says_so(tmp_path, capsys):
    session.main(["--plan-name", "serving", "--plan", "--budget-s", "1680", "--folder", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[4] for line in said if "NO TIME" in line] == [
        "profile-llama-8b:",
        "papers-llama-8b:",
    ]
    ends = [float(line.split()[2]) for line in said]
    assert ends == sorted(ends)
    assert 1500 < ends[-1] <= 1680
    assert said[-1].endswith("the end, of 1680 s")


def test_a_step_that_takes_at_most_so_long_is_ended_then_and_goes_on(tmp_path):
    code = "import sys, time\nprint(sys.argv[sys.argv.index('--budget-s') + 1])\n"
    most = step(tmp_path, "most", code, expected_s=1.0, fills_s=True, most_s=40.0)
    all_of_it = step(tmp_path, "all", code, expected_s=1.0, fills_s=True)
    assert sit(tmp_path, most, all_of_it, budget_s=500.0) == {"most": Ended.DONE, "all": Ended.DONE}
    given = {name: float(Records(tmp_path).last()[name].said) for name in ("most", "all")}
    assert given["most"] <= 1.3 * 40.0
    assert given["all"] > 400.0


def test_a_lane_sees_its_own_gpus_when_only_some_are_visible():
    def seen(gpus, environment):
        return environment_of(Lane(gpus=gpus, steps=()), environment)["CUDA_VISIBLE_DEVICES"]

    assert seen((1,), {}) == "1"
    assert seen((1,), {"CUDA_VISIBLE_DEVICES": "4,6"}) == "6"
    assert seen((0, 1), {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}) == "GPU-a,GPU-b"


def step(tmp_path, name, code, *, expected_s=20.0, **fields):
    (tmp_path / f"{name}.py").write_text(code)
    fields = {"words": (), "needs": (), "slack_s": 0.0} | fields
    return Step(name=name, plan=str(tmp_path / f"{name}.py"), expected_s=expected_s, **fields)


def script(path, *words):
    return [sys.executable, path, *words]


def sit(tmp_path, *steps, budget_s=200.0):
    """Work the steps off in one lane; how the last try of each ended."""
    place = Place(folder=tmp_path, traces=tmp_path / "traces.json", start_s=1.0, command_of=script)
    (tmp_path / "logs").mkdir(exist_ok=True)
    records = Records(tmp_path)
    work = Work(
        place=place,
        budget_s=budget_s,
        records=records,
        checks=Checks(place.traces),
        done=frozenset(records.done()),
    )
    asyncio.run(work.all([Lane(gpus=(0,), steps=steps)]))
    return {name: record.ended for name, record in records.last().items()}


COUNT = "open({path!r}, 'a').write('x')\n"


def test_a_step_is_done_once_and_a_failed_one_again_when_a_session_goes_on(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    steps = (
        step(tmp_path, "bad", COUNT.format(path=str(bad)) + "print('why')\nraise SystemExit(1)"),
        step(tmp_path, "good", COUNT.format(path=str(good))),
    )
    wanted = {"bad": Ended.FAILED, "good": Ended.DONE}
    assert sit(tmp_path, *steps) == wanted
    assert sit(tmp_path, *steps) == wanted
    assert good.read_text() == "x"
    assert bad.read_text() == "xxxx", "each session tries a step again that failed at once"
    assert Records(tmp_path).last()["bad"].said == "why"


def test_a_step_is_not_done_again_when_it_missed_its_target(tmp_path):
    slow = step(tmp_path, "slow", COUNT.format(path=str(tmp_path / "n")) + f"raise SystemExit({MISSED})")
    assert sit(tmp_path, slow) == sit(tmp_path, slow) == {"slow": Ended.MISSED}
    assert (tmp_path / "n").read_text() == "x"


def test_a_step_that_fills_the_time_goes_on_when_the_next_session_begins(tmp_path):
    again = step(tmp_path, "again", COUNT.format(path=str(tmp_path / "n")), fills_s=True)
    sit(tmp_path, again)
    sit(tmp_path, again)
    assert (tmp_path / "n").read_text() == "xx"


HANGS = """
import pathlib, signal, subprocess, time
signal.signal(signal.SIGTERM, lambda *_: None)
server = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path({path!r}).write_text(str(server.pid))
print("hangs", flush=True)
time.sleep(600)
"""


def test_a_step_that_hangs_is_ended_with_its_servers_and_the_next_begins(tmp_path):
    pid = tmp_path / "pid"
    hanging = step(tmp_path, "hanging", HANGS.format(path=str(pid)), expected_s=10.0)
    ended = sit(tmp_path, hanging, step(tmp_path, "next", "print('here')"))
    assert ended == {"hanging": Ended.KILLED, "next": Ended.DONE}
    assert Records(tmp_path).last()["hanging"].said == "hangs"
    assert not is_running(int(pid.read_text()))


def test_a_step_is_not_begun_when_something_is_missing(tmp_path):
    ran = tmp_path / "ran"
    needing = step(tmp_path, "needing", COUNT.format(path=str(ran)), needs=(Need.TRACES,))
    assert sit(tmp_path, needing) == {"needing": Ended.LACKS}
    assert "there is no such file" in Records(tmp_path).last()["needing"].said
    assert not ran.exists()
    (tmp_path / "traces.json").write_text(json.dumps(TRACES))
    assert sit(tmp_path, needing) == {"needing": Ended.DONE}


def test_a_step_is_not_begun_when_the_time_does_not_suffice(tmp_path):
    long = step(tmp_path, "long", "", expected_s=100.0)
    assert sit(tmp_path, long, budget_s=50.0) == {"long": Ended.NO_TIME}


def test_a_lane_waits_for_what_another_makes(tmp_path):
    first = step(tmp_path, "first", "import time; time.sleep(2); open('made', 'w').close()")
    second = step(tmp_path, "second", "open('made')", after=("first",))
    place = Place(folder=tmp_path, traces=tmp_path, start_s=1.0, command_of=script)
    (tmp_path / "logs").mkdir()
    work = Work(place=place, budget_s=200.0, records=Records(tmp_path), checks=Checks(tmp_path))
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        asyncio.run(work.all([Lane(gpus=(1,), steps=(second,)), Lane(gpus=(0,), steps=(first,))]))
    finally:
        os.chdir(before)
    assert [record.ended for record in Records(tmp_path).all()] == [Ended.DONE, Ended.DONE]


def test_what_a_killed_session_left_is_ended_when_the_next_begins(tmp_path):
    left = subprocess.Popen(["sleep", "600"], env=os.environ | {MARK: f"{tmp_path}:1"})
    other = subprocess.Popen(["sleep", "600"], env=os.environ | {MARK: f"{tmp_path}2:1"})
    try:
        with alone_in(tmp_path):
            assert left.wait(30) != 0
            assert other.poll() is None
            with pytest.raises(BlockingIOError), alone_in(tmp_path):
                pass
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ["nothing", "two-gpus-llama-8b"])
def test_a_step_that_the_plan_cannot_do_is_refused_with_those_that_there_are(capsys, name):
    with pytest.raises(SystemExit):
        session.options_of(["--gpus", "2", "--only", name])
    assert f"--only {name}: the steps of this plan are micro-llama-8b, " in capsys.readouterr().err


def test_a_step_of_another_plan_is_done_when_it_is_named():
    chosen = session.lanes_of(session.options_of(["--gpus", "2", "--only", "profile-qwen3-8b"]))
    assert [(lane.gpus, [one.name for one in lane.steps]) for lane in chosen] == [
        ((0,), ["profile-qwen3-8b"])
    ]


def test_two_steps_are_worked_off_and_shown_when_the_engine_is_emulated(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps(TRACES))
    words = "--engine emulator --gpus 2 --only slo-change-llama-8b,profile-codellama-34b --budget-s 280"
    begin = [*command_of("session"), *words.split(), "--folder", "out"]
    done = subprocess.run(
        [*begin, "--traces", "traces.json"], cwd=tmp_path, capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "out" / "tables.md").read_text()
    # How long an edit took is the machine's business.
    assert "| slo-change-llama-8b | done" in table
    assert "| profile-codellama-34b | done |" in table
    assert "requests: " in table
    assert "  unseen " in table
    assert (tmp_path / "out" / "profile" / "codellama-34b.predictors.json").is_file()
    again = subprocess.run([*begin, "--plan"], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert again.stdout.count("done") == 2, again.stdout + again.stderr


def test_ranks_use_no_multicast_when_there_are_several():
    several = arms.Arm(name="stock").environment(cpu=False, tp_size=2)
    assert {several[name] for name in arms.NO_MULTICAST} == {"0", "1"}


def test_a_servers_port_is_none_that_sglang_may_choose_for_itself():
    assert not set(PORTS) & set(range(22_000, 30_000))
