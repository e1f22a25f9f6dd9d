"""Clients that mean harm, in front of a whole daemon: operators and other clients are served all the same."""

import contextlib
import json
import os
import signal
import socket
from urllib.parse import urlsplit

ATTACKER = ("127.0.0.2", 0)
CAUSES = ("evicted", "peer_limit")


@contextlib.contextmanager
def silent_connections(url, count):
    """Connections that say nothing, as far as the system lets them be made."""
    address = (urlsplit(url).hostname, urlsplit(url).port)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(address, 30, source_address=ATTACKER))
        yield


def closed(daemon):
    """Connections to the data plane that it gave up."""
    by_cause = (daemon.metric(f'pdmuxd_http_closed_total{{cause="{c}",listener="data"}}') for c in CAUSES)
    return sum(by_cause)


def test_operators_and_the_next_engine_have_descriptors_when_clients_take_all_they_get(start, until):
    daemon = start(descriptors=256)
    engine = daemon.engine()["pid"]
    with silent_connections(daemon.data_url, 300), silent_connections(daemon.admin_url, 100):
        assert daemon.probe("/healthz").status_code == 200
        assert daemon.data("GET", "/health").status_code == 200
        assert daemon.metric('pdmuxd_http_connections{listener="data"}') <= 64
        os.kill(engine, signal.SIGKILL)
        until(lambda: daemon.engine()["pid"] not in (engine, None))
        until(lambda: daemon.probe("/readyz").status_code == 200)
        with daemon.stream(max_tokens=5) as lines:
            assert "data: [DONE]" in list(lines)
        # The system takes connections before the daemon does.
        until(lambda: closed(daemon) >= 200)
        until(lambda: "peer=127.0.0.2" in daemon.log)
    assert "fewer connections than" in daemon.log


def test_unread_streams_lose_their_places_and_do_not_hold_up_the_end(start, until):
    daemon = start(settings=["http.write_timeout_s=600", "drain_timeout_s=600"])
    body = {
        "model": daemon.model,
        "prompt": ["x"] * 32,
        "max_tokens": 20_000,
        "ignore_eos": True,
        "stream": True,
    }
    content = json.dumps(body).encode()
    address = (urlsplit(daemon.data_url).hostname, urlsplit(daemon.data_url).port)
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(address)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {daemon.key}\r\n"
        unread.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        until(lambda: daemon.metric('pdmuxd_requests_in_flight{tenant="default"}') == 32)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert "cause=not_reading" in daemon.log
