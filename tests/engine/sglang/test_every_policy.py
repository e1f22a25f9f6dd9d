"""Each policy of the registry serves to the end on the loop, whatever it decides."""

import random

import pytest
from engine_rig import RULES, Rig, make_engine_info, settings, tenant_slo

from pdmuxd.engine.sglang.engine_info import Activations
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.partition_tables import make_table

POLICIES = (
    *("auto", "muxwise", "muxwise:preempt+whole", "muxwise:blocking", "drift", "drift:blocking"),
    *("duet", "duet:64", "duet:512+nolookahead", "chunked:64", "prefill-first:64", "upstream"),
    *("static:96,36", "pla/muxwise", "pla/duet:64", "pla+nodeadline/chunked:128", "pla/auto"),
)


def made_for(policy):
    return make_engine_info(
        table=make_table(RULES, PluginEnvironment(policy=policy, link=None, partitions=None))
    )


@pytest.mark.parametrize("tbt_s", [0.006, 0.05])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_once_when_any_policy_decides(policy, tbt_s):
    rig = Rig(policy, engine_info=made_for(policy))
    serve_forty(rig, policy, tbt_s)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_memory_does_not_hold_whole_is_prefilled_in_chunks_when_any_policy_decides(policy):
    rig = Rig(policy, engine_info=made_for(policy).holding(Activations(free_bytes=1250, bytes_per_token=1.0)))
    tokens = {request.rid: len(request.origin_input_ids) for request in serve_forty(rig, policy, 0.05)}
    formed = [names for _, *names in rig.launches("layers")]
    assert all(sum(tokens[name] for name in names) <= 1000 for names in formed)
    steps = [(budget, names) for budget, *names in rig.launches("fused")]
    assert max(budget - len(names) for budget, names in steps) <= 1000
    assert {name for _, names in steps for name in names} >= {name for name in tokens if tokens[name] > 1000}


def serve_forty(rig, policy, tbt_s):
    """All of them end."""
    rig.link.inbox.append(settings(1, policy, tenants=(tenant_slo(tbt_s=tbt_s),)))
    rng = random.Random(5)
    requests = []
    for number in range(40):
        tokens = rng.choice((8, 40, 200, 900, 5000, 12000))
        requests.append(rig.arrive(f"r{number}", tokens=tokens, outputs=rng.choice((1, 5, 40))))
        if number % 7 == 6:
            rig.abort(requests[-3])
        rig.turn()
        rig.device.finish_prefill(marks=rng.choice((0, 1, 2, None)))
    for _ in range(6000):
        if not len(rig.loop.ledger) and not rig.loop.is_busy:
            break
        rig.turn()
        rig.device.finish_prefill(marks=rng.choice((0, 1, 2, None)))
    assert sorted(record.request_id for record in rig.records) == sorted(r.rid for r in requests)
    assert {record.outcome for record in rig.records} == {"finished", "aborted"}
    assert not rig.port.waiting
    assert not rig.port.running
    assert not rig.port.unread
    return requests
