"""The faults, each a function of the site and a random generator; what it returns goes into the log."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sqlite3
import time
from pathlib import Path

import httpx
from hostile_network.malformed import send_malformed

_SYS_PIDFD_GETFD = 438
_CONNECTED = "03"
POLICIES = ("auto", "muxwise", "duet", "chunked:1024", "static:96,36")


def kill_engine(site, rng):
    pid = site.engine().get("pid")
    if pid is None:
        return "there was none"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return None


def stop_engine(site, rng):
    """For a while; now and then for good, which only its replacement ends."""
    pid = site.engine().get("pid")
    if pid is None:
        return "there was none"
    for_s = rng.choice((3.0, 6.0, 40.0))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
        os.kill(pid, signal.SIGCONT)
    return f"{for_s:g} s"


def kill_daemon(site, rng):
    site.kill_daemon()


def cut_link(site, rng):
    """Shut the connection of the link down, from outside."""
    inodes = set()
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[5] == _CONNECTED and "/engine-" in fields[7]:
            inodes.add(f"socket:[{fields[6]}]")
    pid, cut = site.pid, 0
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()) in inodes:
                copy = libc.syscall(_SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if copy >= 0:
                    with socket.socket(fileno=copy) as end:
                        end.shutdown(socket.SHUT_RDWR)
                    cut += 1
    os.close(pidfd)
    return f"{cut} connections"


def lock_database(site, rng):
    """A writer that does not let go for some seconds, while targets are edited."""
    for_s = rng.choice((2.0, 8.0))
    with contextlib.closing(
        sqlite3.connect(site.state_dir / "pdmuxd.db", timeout=10, isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(for_s)
        other.execute("ROLLBACK")
    return f"{for_s:g} s"


def fill_disk(site, rng):
    """The state directory is a small file system of its own where the test could make one."""
    if not os.path.ismount(site.state_dir):
        return "skipped: it takes root to make a small file system"
    path = site.state_dir / "ballast"
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**16))
    edit_slos(site, rng)
    time.sleep(5.0)
    path.unlink()
    return None


def slow_client(site, rng):
    """Streams of which only the head is read."""
    host, port = site.data_url.removeprefix("http://").split(":")
    wanted = {"model": site.model, "prompt": "x", "max_tokens": 5000, "ignore_eos": True, "stream": True}
    body = json.dumps(wanted)
    request = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {site.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    ends = []
    for _ in range(8):
        end = socket.create_connection((host, int(port)), timeout=5)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        end.sendall(request.encode())
        ends.append(end)
    time.sleep(8.0)
    for end in ends:
        end.close()


def disconnects(site, rng):
    """Clients that leave in the middle, and before the first byte."""
    body = {"model": site.model, "prompt": "x " * 500, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    headers = {"Authorization": f"Bearer {site.key}"}
    for index in range(20):
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(timeout=5 if index % 2 else 0.01) as http,
            http.stream("POST", f"{site.data_url}/v1/completions", headers=headers, json=body) as answer,
        ):
            next(answer.iter_bytes(), None)


def malformed(site, rng):
    seen = {}
    for url in (site.data_url, site.admin_url):
        port = int(url.rpartition(":")[2])
        for status, count in asyncio.run(send_malformed(port, rng.randrange(2**31), 200, b"none")).items():
            seen[status] = seen.get(status, 0) + count
    bad = {status for status in seen if status.startswith("5") and status != "503"}
    assert not bad, f"malformed requests were answered {bad}"
    return str(seen)


def edit_slos(site, rng):
    for _ in range(10):
        site.edit_slo(float(rng.randrange(20, 200)))


def change_policy(site, rng):
    """In the file, by a reload, and with the next engine."""
    policy = rng.choice(POLICIES)
    (site.folder / "pdmuxd.toml").write_text(f'[engine]\npolicy = "{policy}"\n')
    reloaded = site.admin("POST", "/daemon/reload")
    restarted = site.admin("POST", "/engine/restart", json={"at_once": False})
    return f"{policy}: {[getattr(answer, 'status_code', None) for answer in (reloaded, restarted)]}"


def upgrade_daemon(site, rng):
    answer = site.admin("POST", "/daemon/upgrade")
    return f"{getattr(answer, 'status_code', None)}"


FAULTS = {
    fault.__name__: fault
    for fault in (
        kill_engine,
        stop_engine,
        kill_daemon,
        cut_link,
        lock_database,
        fill_disk,
        slow_client,
        disconnects,
        malformed,
        edit_slos,
        change_policy,
        upgrade_daemon,
    )
}
