"""A call of every route of the admin address, as an operator makes it at full size."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps, loads

SLO = dumps(
    {"ttft_fixed_ms": 500.0, "ttft_per_1k_new_tokens_ms": 800.0, "tbt_ms": 40.0, "attainment_ratio": 0.95}
).encode()
A_THOUSAND = (
    dumps({"tenants": {f"bulk-{n}": {"max_in_flight": "%d"} for n in range(1000)}})
    .replace('"%d"', "6%d")
    .encode()
)
"""Created by the first call, changed by the others."""
Call = tuple[str, bytes]
"""What is appended to the prefix, and the body."""

CALLS: Mapping[tuple[str, str], tuple[Call, ...]] = {
    ("GET", "/tenants"): (("/tenants", b""), ("/tenants?limit=500&after=t09000", b"")),
    ("POST", "/tenants"): (("/tenants", b'{"name": "new-%d"}'),),
    ("GET", "/tenants/{name}"): (("/tenants/t00001", b""),),
    ("PATCH", "/tenants/{name}"): (("/tenants/t00001", b'{"max_in_flight": %d}'),),
    ("PUT", "/tenants/{name}"): (("/tenants/put-%d", dumps({"slo": loads(SLO)}).encode()),),
    ("DELETE", "/tenants/{name}"): (("/tenants/new-%d", b""),),
    ("GET", "/config"): (("/config", b""),),
    ("PUT", "/config"): (("/config", A_THOUSAND),),
    ("GET", "/config/schema"): (("/config/schema", b""),),
    ("GET", "/prices"): (("/prices", b""),),
    ("PUT", "/prices"): (("/prices", b'{"currency": "EUR", "prices": []}'),),
    ("GET", "/tenants/{name}/keys"): (("/tenants/t00001/keys", b""),),
    ("POST", "/tenants/{name}/keys"): (("/tenants/t00001/keys", b"{}"),),
    ("GET", "/keys/{key_id}"): (("/keys/key_1_0", b""),),
    ("DELETE", "/keys/{key_id}"): (("/keys/key_9_%d", b""),),
    ("POST", "/keys/{key_id}/rotate"): (("/keys/key_8_%d/rotate", b"{}"),),
    ("GET", "/tenants/{name}/limits"): (("/tenants/t00001/limits", b""),),
    ("PATCH", "/tenants/{name}/limits"): (
        ("/tenants/t00002/limits", b'{"requests_per_min": {"value": 60%d}}'),
    ),
    ("GET", "/keys/{key_id}/limits"): (("/keys/key_1_0/limits", b""),),
    ("PATCH", "/keys/{key_id}/limits"): (("/keys/key_1_0/limits", b'{"requests_per_min": {"value": 60%d}}'),),
    ("GET", "/tenants/{name}/slo"): (("/tenants/t00001/slo", b""),),
    ("PUT", "/tenants/{name}/slo"): (("/tenants/t00001/slo", SLO),),
    ("PATCH", "/tenants/{name}/slo"): (("/tenants/t00003/slo", b'{"tbt_ms": 4%d}'),),
    ("GET", "/tenants/{name}/slo/history"): (("/tenants/t00001/slo/history", b""),),
    ("POST", "/tenants/{name}/slo/preview"): (("/tenants/t00001/slo/preview", SLO),),
    ("GET", "/admin-tokens"): (("/admin-tokens", b""),),
    ("POST", "/admin-tokens"): (("/admin-tokens", b'{"name": "op-%d"}'),),
    ("GET", "/admin-tokens/{name}"): (("/admin-tokens/op-1", b""),),
    ("DELETE", "/admin-tokens/{name}"): (("/admin-tokens/op-%d", b""),),
    ("GET", "/audit"): (("/audit", b""),),
    ("GET", "/engine"): (("/engine", b""),),
    ("GET", "/policies"): (("/policies", b""),),
    ("GET", "/policy"): (("/policy", b""),),
    ("GET", "/policy/history"): (("/policy/history", b""),),
    ("GET", "/version"): (("/version", b""),),
    ("GET", "/whoami"): (("/whoami", b""),),
    ("GET", "/profiles"): (("/profiles", b""),),
    ("GET", "/profiles/active"): (("/profiles/active", b""),),
    ("GET", "/decisions"): (("/decisions", b""), ("/decisions?limit=500", b"")),
    ("GET", "/requests"): (
        ("/requests", b""),
        ("/requests?limit=500", b""),
        ("/requests?missed=true&limit=200", b""),
        ("/requests?in_flight=true&limit=500", b""),
    ),
    ("GET", "/requests/{request_id}"): (("/requests/open-1", b""),),
    ("GET", "/attainment"): (
        ("/attainment", b""),
        ("/attainment?limit=0", b""),
        ("/attainment?limit=500&active=true", b""),
        ("/attainment?state=missed&q=9&class=standard", b""),
        ("/attainment?q=nothing-has-this", b""),
        ("/attainment?tenant=t00001", b""),
    ),
    ("GET", "/alarms"): (("/alarms", b""),),
    ("GET", "/alarms/history"): (("/alarms/history", b""),),
    ("GET", "/incidents"): (("/incidents", b""),),
    ("GET", "/incidents/{incident_id}"): (("/incidents/t00001-1", b""),),
    ("GET", "/history"): (("/history", b""), ("/history?tenant=t00001", b"")),
    ("GET", "/history/decisions"): (("/history/decisions", b""),),
    ("GET", "/effects"): (("/effects", b""),),
    ("GET", "/usage"): (("/usage", b""),),
    ("GET", "/ledger"): (("/ledger", b""),),
    ("GET", "/partitions"): (("/partitions", b""),),
    ("GET", "/guard"): (("/guard", b""),),
    ("GET", "/drift"): (("/drift", b""),),
    ("POST", "/what-if"): (("/what-if", b'{"tbt_ms": 40}'),),
    ("GET", "/what-if/tbt-costs"): (("/what-if/tbt-costs", b""),),
    ("GET", "/what-if/replays"): (("/what-if/replays", b""),),
    ("GET", "/engine/log"): (("/engine/log", b""),),
    ("GET", "/engine/quarantine"): (("/engine/quarantine", b""),),
    ("GET", "/daemon/duties"): (("/daemon/duties", b""),),
}
"""`%d` is another number in each call."""

PROBES = ("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json")

OF_ONE_THING = frozenset(
    {
        ("GET", "/events"),
        ("PUT", "/policy"),
        ("POST", "/policy/rollback"),
        ("POST", "/profiles"),
        ("POST", "/profiles/rollback"),
        ("POST", "/profiles/deactivate"),
        ("GET", "/profiles/{profile_id}"),
        ("GET", "/profiles/{profile_id}/document"),
        ("GET", "/profiles/{profile_id}/diff/{other_id}"),
        ("POST", "/profiles/{profile_id}/activate"),
        ("PUT", "/profiles/{profile_id}/frozen"),
        ("GET", "/profiles/{profile_id}/learned"),
        ("DELETE", "/profiles/{profile_id}/learned"),
        ("DELETE", "/profiles/{profile_id}/learned/{cell}"),
        ("GET", "/profiles/{profile_id}/changes"),
        ("POST", "/what-if/replays"),
        ("GET", "/what-if/replays/{job_id}"),
        ("DELETE", "/what-if/replays/{job_id}"),
        ("POST", "/engine/start"),
        ("POST", "/engine/drain"),
        ("POST", "/engine/resume"),
        ("POST", "/engine/restart"),
        ("POST", "/engine/quarantine/release"),
        ("POST", "/daemon/reload"),
        ("POST", "/daemon/upgrade"),
    }
)
"""Routes that need an engine, a profile or a job, and are about that one thing however many tenants there
are."""
