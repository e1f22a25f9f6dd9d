"""A measured profile in a running daemon."""

import json

from profiling import measured_profile

from pdmuxd.engine.profiling.document import to_json


def test_the_engine_predicts_with_a_profile_within_a_second_when_it_is_activated(daemon, until):
    until(lambda: is_in_force(daemon))
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert active["predicts_with"].startswith("the engine's own: h200-llama-8b")
    document = json.loads(to_json(measured_profile("mine")))
    made = daemon.admin("POST", "/api/v1/profiles", json=document).json()

    daemon.admin("POST", f"/api/v1/profiles/{made['id']}/activate", json={})
    assert until(lambda: is_in_force(daemon), within_s=2.0) < 1.5
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert active["predicts_with"] == f"profile {made['id']} (mine, version 1)"

    daemon.admin("POST", "/api/v1/profiles/rollback")
    until(lambda: is_in_force(daemon), within_s=2.0)
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert (active["profile"], active["in_force"]) == (None, True)
    assert "no profile is active" in daemon.log


def is_in_force(daemon):
    return daemon.admin("GET", "/api/v1/profiles/active").json()["in_force"]
