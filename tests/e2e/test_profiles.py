"""A measured profile in a running daemon."""

import json

from profiling import measured_profile

from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE
from pdmuxd.engine.profiling.document import to_json


def test_the_engine_predicts_with_a_profile_when_it_is_activated(daemon, until):
    if daemon.admin("GET", "/api/v1/profiles/active").json()["profile"] is not None:
        daemon.admin("POST", "/api/v1/profiles/rollback")  # an earlier try of this test was broken off
    until(lambda: is_in_force(daemon))
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert active["predicts_with"].startswith("the engine's own: h200-llama-8b")
    document = json.loads(to_json(measured_profile("mine", profile=DEFAULT_PROFILE)))
    made = daemon.admin("POST", "/api/v1/profiles", json=document).json()

    daemon.admin("POST", f"/api/v1/profiles/{made['id']}/activate", json={})
    until(lambda: is_in_force(daemon))
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert active["predicts_with"] == f"profile {made['id']} (mine, version {made['version']})"
    daemon.admin("POST", "/api/v1/profiles/rollback")
    until(lambda: is_in_force(daemon))
    active = daemon.admin("GET", "/api/v1/profiles/active").json()
    assert (active["profile"], active["in_force"]) == (None, True)
    assert "no profile is active" not in daemon.log, "the emulator's own profile is the truth"
    assert "Adding job" not in daemon.log, "APScheduler's own lines are noise"


def is_in_force(daemon):
    return daemon.admin("GET", "/api/v1/profiles/active").json()["in_force"]
