"""Wrong keys by the thousand, in front of a whole daemon: who has a good one is served, from wherever."""

from __future__ import annotations

import contextlib
import http.client
import resource
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ATTACKER = Path(__file__).parents[1] / "support" / "wrong_keys.py"
SAME, OTHER = "127.0.0.1", "127.0.0.7"
SECONDS = 5.0


@contextlib.contextmanager
def wrong_keys(url, count, path, *sources):
    port = str(urlsplit(url).port)
    command = [sys.executable, str(ATTACKER), port, str(count), path, *sources]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"begun\n"
            time.sleep(2.0)  # until it has all its connections, and has been throttled
            yield
        finally:
            process.kill()


def measured(url, path, source, headers=None, *, seconds=SECONDS):
    """Ask again and again, each time by a new connection; what came, and how long it took."""
    statuses, took_s = [], []
    place = urlsplit(url)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        begun_s = time.monotonic()
        connection = http.client.HTTPConnection(place.hostname, place.port, 10, source_address=(source, 0))
        try:
            connection.request("GET", path, headers=headers or {})
            statuses.append(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            statuses.append(repr(error))
        took_s.append(time.monotonic() - begun_s)
        connection.close()
        time.sleep(0.05)
    return statuses, sorted(took_s)


def asked(url, path, source, headers=None):
    """What came, after a line about it."""
    statuses, took_s = measured(url, path, source, headers)
    print(
        f"{path} from {source}: {statuses.count(200)} of {len(statuses)}, "
        f"p50 {took_s[len(took_s) // 2] * 1000:.0f} ms, p99 {took_s[len(took_s) * 99 // 100] * 1000:.0f} ms"
    )
    return statuses


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_good_key_is_served_when_1100_connections_send_wrong_ones_from_its_address(start):
    daemon = start()
    key = {"Authorization": f"Bearer {daemon.key}"}
    with wrong_keys(daemon.data_url, 1100, "/v1/models", SAME):
        for source in (SAME, OTHER):
            statuses = asked(daemon.data_url, "/v1/models", source, key)
            assert set(statuses) == {200}
        assert set(asked(daemon.admin_url, "/healthz", OTHER)) == {200}
    assert daemon.metric('pdmuxd_http_auth_failures_total{listener="data"}') > 1000


@pytest.mark.usefixtures("many_files")
def test_all_are_served_when_wrong_keys_come_from_five_addresses(start):
    daemon = start()
    key = {"Authorization": f"Bearer {daemon.key}"}
    with wrong_keys(daemon.data_url, 4750, "/v1/models", *(f"127.0.1.{each}" for each in range(1, 6))):
        assert set(asked(daemon.data_url, "/v1/models", SAME, key)) == {200}
        assert set(asked(daemon.admin_url, "/healthz", SAME)) == {200}


@pytest.mark.usefixtures("many_files")
def test_operators_and_probes_are_served_when_600_connections_send_wrong_tokens(start):
    daemon = start()
    token = {"Authorization": f"Bearer {daemon.token}"}
    with wrong_keys(daemon.admin_url, 600, "/api/v1/tenants", SAME):
        for source in (SAME, OTHER):
            assert set(asked(daemon.admin_url, "/api/v1/tenants", source, token)) == {200}
            assert set(asked(daemon.admin_url, "/healthz", source)) == {200}
            assert set(asked(daemon.admin_url, "/readyz", source)) == {200}


@pytest.mark.usefixtures("many_files")
def test_operators_and_probes_are_served_when_4750_connections_send_wrong_tokens(start):
    daemon = start()
    token = {"Authorization": f"Bearer {daemon.token}"}
    with wrong_keys(daemon.admin_url, 4750, "/api/v1/tenants", *(f"127.0.1.{each}" for each in range(1, 6))):
        assert set(asked(daemon.admin_url, "/api/v1/tenants", OTHER, token)) == {200}
        assert set(asked(daemon.admin_url, "/healthz", OTHER)) == {200}
        assert set(asked(daemon.data_url, "/v1/models", OTHER, {"x-api-key": daemon.key})) == {200}
