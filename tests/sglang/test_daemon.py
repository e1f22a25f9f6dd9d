"""`pdmuxd serve --engine sglang`: through the gateway, across crashes, and when the start must fail."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest
from answer_forms import alike, ask_forms, check_forms
from daemon_process import Daemon, SharedDaemon, is_running, wait_until
from prefix_cache import check_isolation
from sglang_processes import TEXTS, complete, daemon_settings, environment

from gpu_servers.model_folder import write_model_folder


@pytest.fixture(scope="module")
def shared(python, model, tmp_path_factory):
    def begin():
        folder = tmp_path_factory.mktemp("a daemon")
        return Daemon(folder, settings=daemon_settings(python, model), environ=environment())

    with contextlib.closing(SharedDaemon(begin)) as made:
        yield made


@pytest.fixture
def daemon(shared):
    return shared.get()


def test_the_gateway_gives_stock_sglangs_answers(daemon, stock):
    through = [complete(daemon.data_url, daemon.key, text) for text in TEXTS]
    assert through == stock.completions
    assert len(set(through)) > 20, "a comparison of constants"


def test_the_gateway_asks_for_the_form_that_was_asked_for(daemon, stock):
    answers = asyncio.run(ask_forms(daemon.data_url, key=daemon.key, rounds=2))
    check_forms(answers)
    assert alike(answers, stock.forms[: len(answers)])


def test_the_engines_records_reach_the_metrics(daemon):
    complete(daemon.data_url, daemon.key, "count me")
    wait_until(lambda: daemon.metric('pdmuxd_engine_requests_total{outcome="finished",tenant="default"}') > 0)
    assert daemon.engine()["engine"]["engine"] == "sglang"


def test_the_key_is_on_no_command_line(daemon):
    pid = daemon.engine()["pid"]
    words = psutil.Process(pid).cmdline()
    assert "pdmuxd.engine.sglang" in words
    assert not any("key" in word for word in words)


def test_the_engine_comes_back_when_it_is_killed(daemon, stock):
    pid = daemon.engine()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: daemon.admin("GET", "/readyz").status_code == 503)
    wait_until(lambda: daemon.admin("GET", "/readyz").status_code == 200, within_s=300)
    assert daemon.engine()["pid"] != pid
    assert complete(daemon.data_url, daemon.key, TEXTS[0]) == stock.completions[0]


def test_the_engine_ends_when_the_daemon_is_killed(shared):
    daemon = shared.take()
    pid = daemon.engine()["pid"]
    daemon.process.kill()
    daemon.process.communicate()
    wait_until(lambda: not is_running(pid))


def test_the_first_start_ends_in_one_line_when_sglang_cannot_load_the_model(python, tmp_path):
    model = write_model_folder("tiny", tmp_path / "odd", architectures=["FooForCausalLM"])
    given = [
        *daemon_settings(python, model),
        "state_dir=state",
        "data.port=0",
        "admin.port=0",
        "log.format=json",
    ]
    flags = [word for setting in given for word in ("--set", setting)]
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *flags, "serve", "--first-run"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: the model cannot be loaded (engine.sglang.model): Cannot find model")
    assert "Traceback" not in done.stderr
    assert "FooForCausalLM" in (tmp_path / "state" / "engine.log").read_text()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("engine.sglang.model=/none", "engine.sglang.model: there is no model folder /none"),
        ("engine.sglang.tp_size=3", "engine.sglang.tp_size: a tensor-parallel size of 3 does not divide"),
        ("engine.sglang.extra_args=--enable-lora", "SGLang's flag --enable-lora is not allowed here"),
    ],
)
def test_the_start_is_refused_in_one_line_when_a_setting_cannot_work(python, model, tmp_path, setting, says):
    given = [*daemon_settings(python, model), setting, "data.port=0", "admin.port=0"]
    flags = [word for one in given for word in ("--set", one)]
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *flags, "serve"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_tenant_finds_anothers_prompt_in_the_prefix_cache(daemon):
    check_isolation(daemon)
