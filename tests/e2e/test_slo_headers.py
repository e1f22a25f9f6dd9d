"""A router's targets for one request, through `pdmuxd serve`: in the engine's record, and in attainment."""

import httpx
import pytest
from daemon_process import wait_until

HEADERS = {
    "x-llm-d-slo-ttft-ms": "1",
    "x-llm-d-slo-tpot-ms": "10000",
    "x-pdmuxd-e2e-ms": "9000",
    "x-pdmuxd-session-id": "task",
}


@pytest.mark.parametrize(("trusted", "target_ms"), [("127.0.0.0/8", 1.0), ("10.0.0.0/8", None)])
def test_a_trusted_peers_target_decides_about_that_request(start, trusted, target_ms):
    daemon = start(settings=[f"data.trusted_peers={trusted}"])
    tenants = daemon.admin("GET", "/api/v1/tenants/default/slo").json()
    body = {"model": daemon.model, "prompt": "Once upon a time", "max_tokens": 4}

    def ask(headers):
        answer = httpx.post(
            f"{daemon.data_url}/v1/completions",
            json=body,
            headers={"Authorization": f"Bearer {daemon.key}", **headers},
            timeout=60,
        )
        assert answer.status_code == 200
        return answer.headers["x-request-id"]

    def record_of(rid):
        found = []

        def is_there():
            answer = daemon.admin("GET", f"/api/v1/requests/{rid}")
            found[:] = [answer.json()] if answer.status_code == 200 else []
            return found and found[0].get("ttft_target_ms") is not None

        wait_until(is_there)
        return found[0]

    plain, own = record_of(ask({})), record_of(ask(HEADERS))
    expected = plain["ttft_target_ms"] if target_ms is None else target_ms
    assert own["ttft_target_ms"] == expected
    assert own["tbt_target_ms"] == (tenants["tbt_ms"] if target_ms is None else 10_000)
    assert (plain["e2e_target_ms"], own["e2e_target_ms"]) == (None, None if target_ms is None else 9_000)
    if target_ms is not None:
        assert own["e2e_ms"] > 0.0
        later = record_of(ask(HEADERS))
        assert later["e2e_target_ms"] < 9_000  # what the session has left
