"""The dashboard's panels, asked of a real Prometheus that scrapes a real daemon in overload."""

import contextlib

import httpx
import pytest
from daemon_process import PATIENCE_S, ask, wait_until
from monitored_node import PROMETHEUS, Load, Prometheus, panels

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="needs Prometheus: apt-get install prometheus")

SHARES_ARE_WHOLE = [pytest.approx(1.0, abs=0.01)]


def tenant(daemon, name, **fields):
    daemon.admin("POST", "/api/v1/tenants", json={"name": name, **fields})
    return daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={}).json()["secret"]


def leave_in_mid_answer(daemon, key):
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}}
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.stream(
        "POST", f"{daemon.data_url}/generate", json=body, headers=headers, timeout=PATIENCE_S
    ) as answer:
        next(answer.iter_bytes())


@pytest.fixture
def overloaded(start, folder):
    """The Prometheus of a daemon with two tenants, of which one asks for more than the GPU holds."""
    daemon = start()
    slo = {"ttft_fixed_ms": 200, "ttft_per_1k_new_tokens_ms": 50, "tbt_ms": 8, "attainment_ratio": 0.99}
    chat = tenant(daemon, "chat", slo=slo)
    flood = tenant(daemon, "flood", max_in_flight=60)
    with contextlib.closing(Prometheus(folder / "prometheus", [daemon.admin_url])) as prometheus:
        prometheus.wait_until_up()
        # So that series of what does not happen every day are there before: a rate wants two scrapes.
        ask("POST", f"{daemon.data_url}/generate", json={"text": "x"})
        leave_in_mid_answer(daemon, chat)
        with Load(daemon.data_url, (chat, 6.0, 300, 60), (flood, 12.0, 8000, 40)).going():
            yield prometheus


def test_every_panel_shows_something_when_the_node_is_overloaded(overloaded):
    empty = {
        f"{panel.title}: {query}": query
        for panel in panels()
        for query, _ in panel.queries
        if not panel.only_on_gpu
    }

    def all_show():
        for name in [name for name, query in empty.items() if overloaded.query(query)]:
            del empty[name]
        return not empty

    # Whatever a panel shows comes in time, as long as the load goes on.
    with contextlib.suppress(AssertionError):
        wait_until(all_show, within_s=3 * PATIENCE_S)
    assert not empty
    late = "tenant:pdmuxd_ttft_missed:ratio_rate5m > 0"
    wait_until(lambda: "chat" in {each["metric"]["tenant"] for each in overloaded.query(late)})
    shares = "sum by (instance) (tenant:pdmuxd_sm_time:share_rate5m)"
    wait_until(lambda: [float(each["value"][1]) for each in overloaded.query(shares)] == SHARES_ARE_WHOLE)
