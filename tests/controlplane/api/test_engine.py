from __future__ import annotations

from dataclasses import replace

from admin_daemon import MadeUpQuarantine
from stores import AdminCalls, slo

from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.observing import Hidden
from pdmuxd.engine.core.policies.registry import known_policies
from pdmuxd.engine.link.messages import LINK_PROTOCOL, EngineStats, Hello

HELLO = Hello(
    protocol=LINK_PROTOCOL,
    engine="emulator",
    engine_version="0.1.0",
    pid=42,
    model="llama-3.1-8b",
    device="H200",
    total_sms=132,
    partitions=((132, 0), (96, 36), (0, 132)),
    profile="h200-llama-8b",
    profile_provenance="derived",
    settings_version=0,
)
STATS = EngineStats(
    uptime_s=1.5,
    settings_version=3,
    policy="muxwise",
    running=1,
    waiting=2,
    prefilling=3,
    kv_used_tokens=4,
    kv_capacity_tokens=5,
    cached_tokens=6,
    prompt_tokens=7,
    reused_tokens=8,
    output_tokens=9,
    steps=10,
    switches=11,
    preemptions=12,
    retractions=13,
    partition_id=1,
    prefill_sms=96,
    decode_sms=36,
    sm_busy_prefill_ratio=0.25,
    sm_busy_decode_ratio=0.5,
    dropped_records=0,
    hidden=Hidden(long_prompt=2),
)
SERVING = EngineStatus(
    state="serving",
    since_s=1_769_860_800.0,
    pid=42,
    restarts=1,
    hello=HELLO,
    stats=STATS,
    acked_version=3,
    wanted_version=4,
    last_error="killed by signal 9",
)


async def test_the_engine_is_shown_whole_when_it_serves(call: AdminCalls) -> None:
    call.status = SERVING

    body = (await call("GET", "/api/v1/engine")).json()

    assert body["state"] == "serving"
    assert body["since"] == "2026-01-31T12:00:00Z"
    assert (body["pid"], body["restarts"], body["last_error"]) == (42, 1, "killed by signal 9")
    assert (body["policy"], body["wanted_version"], body["acked_version"]) == ("muxwise", 4, 3)
    assert body["engine"]["partitions"] == [
        {"prefill_sms": 132, "decode_sms": 0},
        {"prefill_sms": 96, "decode_sms": 36},
        {"prefill_sms": 0, "decode_sms": 132},
    ]
    assert (body["engine"]["total_sms"], body["engine"]["profile_provenance"]) == (132, "derived")
    for name in EngineStats.__struct_fields__:
        if name not in ("settings_version", "policy", "shadow", "hidden"):  # shown with the policy
            assert body["stats"][name] == getattr(STATS, name)
    assert body["stats"]["hidden"] == {
        "policy_change": 0,
        "kv_denied": 0,
        "long_prompt": 2,
        "beyond_window": 0,
    }


async def test_what_is_not_known_is_null_when_the_engine_starts(call: AdminCalls) -> None:
    call.status = replace(SERVING, state="starting", hello=None, stats=None, pid=None, acked_version=0)
    body = (await call("GET", "/api/v1/engine")).json()
    assert (body["state"], body["engine"], body["stats"], body["policy"]) == ("starting", None, None, None)


async def test_the_strictest_enabled_tenant_is_named_when_several_conflict(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    async def strictest() -> object:
        return (await call("GET", "/api/v1/engine")).json()["strictest_tbt"]

    assert await strictest() is None
    control_plane.create_tenant("loose", slo(0.1))
    control_plane.create_tenant("strict", slo(0.02))
    assert await strictest() == {"tenant": "strict", "tbt_ms": 20.0}
    control_plane.update_tenant("strict", enabled=False)
    assert await strictest() == {"tenant": "loose", "tbt_ms": 100.0}


async def test_all_policies_are_listed_when_asked(call: AdminCalls) -> None:
    names = [one["name"] for one in (await call("GET", "/api/v1/policies")).json()]
    assert names == [info.name for info in known_policies()]


async def test_the_settings_version_is_the_databases_when_asked(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    control_plane.create_tenant("chat")
    control_plane.keys.issue("chat")
    assert (await call("GET", "/api/v1/version")).json()["settings_version"] == 2


async def test_what_is_held_is_listed_and_its_release_is_in_the_audit(control_plane: ControlPlane) -> None:
    quarantine = MadeUpQuarantine()
    call = AdminCalls(control_plane, quarantine=quarantine)
    (held,) = (await call("GET", "/api/v1/engine/quarantine")).json()
    assert (held["tenant"], held["body"], held["request_ids"]) == ("chat", "9f2c11aa55", ["r1", "r2"])
    assert held["until"].endswith("Z")
    assert held["engine_errors"] == ["RuntimeError: one", "RuntimeError: two"]
    wrong = await call("POST", "/api/v1/engine/quarantine/release", json={"tenant": 5})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "tenant")
    path, tenants = "/api/v1/engine/quarantine/release", ({"tenant": "other"}, {"tenant": "chat"}, {})
    assert [(await call("POST", path, json=body)).json()["released"] for body in tenants] == [0, 1, 0]
    assert (await call("GET", "/api/v1/engine/quarantine")).json() == []
    (entry,) = (each for each in control_plane.audit(limit=9) if each.action == "quarantine.release")
    assert entry.after == {"released": 1, "tenants": ["chat"]}
