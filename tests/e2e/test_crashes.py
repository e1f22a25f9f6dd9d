"""What is killed, and what is left."""

import json
import os
import signal


def test_everything_goes_on_when_the_engine_is_killed(start, until):
    daemon = start()
    pid = daemon.engine()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: daemon.engine()["restarts"] == 1 and daemon.probe("/readyz").status_code == 200)
    assert daemon.engine()["pid"] != pid
    until(lambda: (engine := daemon.engine())["acked_version"] == engine["wanted_version"])
    assert daemon.client.completions.create(model=daemon.model, prompt="x", max_tokens=2)


def test_clients_are_told_when_the_engine_is_killed_in_mid_stream(start, until):
    delays = ["engine.restart_backoff_max_s=3600", "engine.restart_backoff_initial_s=3600"]
    daemon = start(settings=delays)
    with daemon.stream() as lines:
        os.kill(daemon.engine()["pid"], signal.SIGKILL)
        rest = [line for line in lines if line]
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "engine_lost"
    until(lambda: daemon.probe("/readyz").status_code == 503)
    assert daemon.data("POST", "/v1/completions").status_code == 503


def test_state_is_found_and_no_orphan_left_when_the_daemon_is_killed(start, running, until):
    daemon = start()
    slo = daemon.admin("GET", "/api/v1/tenants/default/slo").json()
    names = ("ttft_fixed_ms", "ttft_per_1k_new_tokens_ms", "attainment_ratio")
    wanted = {name: slo[name] for name in names} | {"tbt_ms": 33}
    assert daemon.admin("PUT", "/api/v1/tenants/default/slo", json=wanted).is_success
    orphan = daemon.engine()["pid"]
    os.kill(orphan, signal.SIGSTOP)  # or it would end by itself, as it has nothing in flight
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    assert running(orphan)
    successor = start(key=daemon.key)
    assert not running(orphan)
    assert "ended the engine that an earlier daemon left" in successor.log
    assert successor.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 33
    assert successor.client.completions.create(model=successor.model, prompt="x", max_tokens=2)
    last = successor.engine()["pid"]
    assert successor.stop() == 0
    until(lambda: not running(last))
