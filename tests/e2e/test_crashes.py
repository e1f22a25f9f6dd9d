"""What is killed, and what is left."""

import json
import os
import signal
import time

import httpx


def test_everything_goes_on_when_the_engine_is_killed_in_mid_stream(start, until):
    daemon = start()
    pid = daemon.engine()["pid"]
    with daemon.stream() as lines:
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        rest = [line for line in lines if line]
        assert time.monotonic() - killed_s < 2.0
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "engine_lost"
    assert httpx.get(f"{daemon.admin_url}/readyz").status_code == 503
    headers = {"Authorization": f"Bearer {daemon.key}"}
    refused = httpx.post(f"{daemon.data_url}/v1/completions", headers=headers)
    assert refused.status_code == 503
    until(lambda: httpx.get(f"{daemon.admin_url}/readyz").status_code == 200)
    engine = daemon.engine()
    assert (engine["restarts"], engine["pid"] != pid) == (1, True)
    assert engine["acked_version"] == engine["wanted_version"]
    assert daemon.client.completions.create(model=daemon.model, prompt="x", max_tokens=2)


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
