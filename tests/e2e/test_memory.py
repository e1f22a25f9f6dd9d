"""No memory for more: the request that wants it is refused, and everything else goes on."""

import resource
from pathlib import Path

MARGIN_BYTES = 8 * 2**20
LARGE = "x " * (7 * 2**20)
"""A body of 14 MiB, of the 16 that are allowed."""


def allow_memory(pid, margin_bytes):
    """No more address space than the process has now and `margin_bytes`."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + margin_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def ask_for(daemon, prompt):
    body = {"model": daemon.model, "prompt": prompt, "max_tokens": 2}
    return daemon.data("POST", "/v1/completions", json=body)


def test_only_the_large_request_is_refused_when_the_daemon_has_no_memory_for_it(start, until):
    daemon = start()
    allow_memory(daemon.process.pid, MARGIN_BYTES)
    for _ in range(3):
        answer = ask_for(daemon, LARGE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "out_of_memory")
        assert answer.headers["Retry-After"]
        assert ask_for(daemon, "x").status_code == 200
    resource.prlimit(daemon.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert ask_for(daemon, "x " * 1000).status_code == 200
    assert daemon.probe("/readyz").status_code == 200
    until(daemon.is_idle)
    assert "no memory for a request" in daemon.log or "cause=out_of_memory" in daemon.log
    assert "Traceback" not in daemon.log
    assert daemon.stop() == 0
