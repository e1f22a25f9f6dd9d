"""A policy that the engine refuses holds up nothing else."""

import asyncio

import msgspec
from profiling import greeting_of

from pdmuxd.daemon.supervisor.sync import SettingsSync
from pdmuxd.engine.link.messages import Ack, EngineSettings, TenantSlo

SETTINGS = EngineSettings(version=3, policy="auto", tenants=())


class Link:
    """An engine that has streams for `auto` only."""

    def __init__(self, sync):
        self.sent = []
        self._sync = sync

    async def send(self, msg):
        self.sent.append((msg.version, msg.policy, msg.partitions))
        error = None if msg.policy == "auto" and msg.partitions is None else "made only when it starts"
        self._sync.on_ack(Ack(version=msg.version, error=error))


async def settle(sync, link):
    running = asyncio.create_task(sync.run(link))
    await sync.wait_settled()
    running.cancel()


async def test_the_engine_goes_on_with_the_policy_that_it_had_when_it_refuses_another():
    sync = SettingsSync(SETTINGS)
    link = Link(sync)
    assert sync.starting().policy == "auto"
    sync.meet(greeting_of())
    await settle(sync, link)

    sync.want(msgspec.structs.replace(SETTINGS, version=4, policy="static:96,36"))
    await settle(sync, link)
    assert link.sent == [(3, "auto", None), (4, "static:96,36", None), (4, "auto", None)]
    assert (sync.in_force, sync.refusal) == (True, None)
    assert sync.policy_difference == "made only when it starts"

    # An edit of something else does not ask again, another policy does.
    sync.want(msgspec.structs.replace(SETTINGS, version=5, policy="static:96,36"))
    await settle(sync, link)
    assert link.sent[3:] == [(5, "auto", None)]
    sync.want(msgspec.structs.replace(SETTINGS, version=6, partitions=((96, 36),)))
    await settle(sync, link)
    assert link.sent[4:] == [(6, "auto", ((96, 36),)), (6, "auto", None)]
    sync.want(msgspec.structs.replace(SETTINGS, version=7))
    await settle(sync, link)
    assert (link.sent[-1], sync.policy_difference) == ((7, "auto", None), None)


async def test_steps_are_planned_for_a_floor_when_a_tenant_is_capped_and_no_longer_when_it_is_free():
    tenants = tuple(
        TenantSlo(
            tenant=name,
            ttft_fixed_s=1.0,
            ttft_per_1k_new_tokens_s=1.0,
            tbt_s=0.01,
            attainment_ratio=0.99,
            slo_version=1,
        )
        for name in ("chat", "search")
    )
    sync = SettingsSync(msgspec.structs.replace(SETTINGS, tenants=tenants))
    link, sent, floors_s = Link(sync), [], {"chat": 0.06, "gone": 0.1}

    async def send(msg):
        sent.append({each.tenant: each.tbt_floor_s for each in msg.tenants})
        await Link.send(link, msg)

    link.send = send
    sync.use_floors(floors_s)
    sync.meet(greeting_of())
    await settle(sync, link)
    await settle(sync, link)
    assert sent == [{"chat": 0.06, "search": None}], "nothing is said twice"
    sync.use_floors({})
    await settle(sync, link)
    assert sent[1:] == [{"chat": None, "search": None}]
    assert sync.in_force


async def test_the_next_engine_is_started_with_what_is_wanted():
    sync = SettingsSync(SETTINGS)
    link = Link(sync)
    sync.starting()
    sync.meet(greeting_of())
    sync.want(msgspec.structs.replace(SETTINGS, version=4, policy="duet", partitions=((96, 36),)))
    await settle(sync, link)
    assert sync.policy_difference is not None
    sync.forget_engine()
    assert sync.policy_difference is None
    wanted = sync.starting()
    assert (wanted.policy, wanted.partitions) == ("duet", ((96, 36),))


async def test_a_refusal_stands_when_it_is_not_of_the_policy():
    sync = SettingsSync(SETTINGS)

    class Refusing(Link):
        async def send(self, msg):
            self._sync.on_ack(Ack(version=msg.version, error="no such profile"))

    sync.starting()
    sync.meet(greeting_of())
    await settle(sync, Refusing(sync))
    assert sync.refusal == "the engine refused settings 3: no such profile"


async def test_a_delivery_that_was_measured_is_told_at_once():
    sync = SettingsSync(SETTINGS)
    link, sent = Link(sync), []

    async def send(msg):
        sent.append(msg.delivery_s)
        await Link.send(link, msg)

    link.send = send
    sync.meet(greeting_of())
    await settle(sync, link)
    sync.use_delivery(0.006)
    await settle(sync, link)
    assert sent == [None, 0.006]
    assert sync.in_force
