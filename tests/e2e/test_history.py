"""What was served outlives the daemon: attainment, history and usage after a stop and after a kill."""

import signal

# Nobody can keep this: every first token is late.
IMPOSSIBLE = {"ttft_fixed_ms": 1, "ttft_per_1k_new_tokens_ms": 0, "tbt_ms": 10000, "attainment_ratio": 0.9}


def complete(daemon, *, requests=3):
    for _ in range(requests):
        body = {"model": daemon.model, "prompt": "Hello", "max_tokens": 3, "ignore_eos": True, "stream": True}
        assert daemon.data("POST", "/v1/completions", json=body).status_code == 200


def attainment(daemon):
    (tenant,) = daemon.admin("GET", "/api/v1/attainment?tenant=default").json()["tenants"]
    return [(window["judged"], window["missed"]) for window in tenant["ttft"]]


def usage(daemon):
    lines = daemon.admin("GET", "/api/v1/usage").json()["lines"]
    return [(line["tenant"], line["requests"], line["output_tokens"]) for line in lines]


def test_a_restart_forgets_no_budget(start, until):
    daemon = start()
    impossible = daemon.admin("PUT", "/api/v1/tenants/default/slo?force=true", json=IMPOSSIBLE)
    assert impossible.status_code == 200
    until(lambda: daemon.engine()["acked_version"] == daemon.engine()["wanted_version"])
    complete(daemon)
    until(lambda: attainment(daemon)[0] == (3, 3))
    (edit,) = daemon.admin("GET", "/api/v1/effects").json()["effects"]
    assert daemon.stop() == 0
    daemon = start(key=daemon.key)
    # 5 min, 1 h, 24 h, 30 d; the last minute alone is not restored.
    until(lambda: attainment(daemon)[1:] == [(3, 3)] * 4)
    assert usage(daemon) == [("default", 3, 9)]
    history = daemon.admin("GET", "/api/v1/history?tenant=default&step_s=3600").json()
    assert sum(history["columns"]["arrivals"]) == 3
    assert {"engine", "slo"} <= {mark["kind"] for mark in history["marks"]}
    (kept,) = daemon.admin("GET", "/api/v1/effects").json()["effects"]
    assert (kept["text"], kept["at"], kept["before"]) == (edit["text"], edit["at"], edit["before"])
    complete(daemon)
    until(lambda: attainment(daemon)[1:] == [(6, 6)] * 4)
    until(lambda: usage(daemon) == [("default", 6, 18)])  # and what is told is stored
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    daemon = start(key=daemon.key)
    until(lambda: attainment(daemon)[1:] == [(6, 6)] * 4)
    assert usage(daemon) == [("default", 6, 18)]
    node = daemon.admin("GET", "/api/v1/history?step_s=86400").json()["columns"]
    assert sum(node["total_sm_ms"]) >= sum(node["prefill_sm_ms"]) + sum(node["decode_sm_ms"]) > 0
