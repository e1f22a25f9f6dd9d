"""Looks at what TBT targets cost: counted, capped, told, kept over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scrapes import value
from stores import new_database, opened, slo
from telemetry_feeds import loaded_telemetry, predicting, request_record, step, tenants_event

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.tbt_cap_rules import BEGINS_AFTER, ENDS_AFTER
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.bus import DirectoryChanged
from pdmuxd.daemon.duties.tbt_cap_check import TbtCapKeeper
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import TbtCostCollector
from pdmuxd.engine.core.errors import StoreError


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with opened(new_database(tmp_path)) as control_plane:
        control_plane.create_tenant("chat", slo(0.011), max_tbt_cost_ratio=0.0)
        control_plane.create_tenant("search", slo(0.06))
        yield control_plane


@pytest.fixture
def known(control_plane: ControlPlane) -> Telemetry:
    return loaded_telemetry(control_plane.directory)


class Looks:
    """A keeper whose looks are ten seconds apart."""

    def __init__(self, folder: Path, known: Telemetry, control_plane: ControlPlane) -> None:
        self.now_s = 0.0
        self.changes: list[dict[str, float]] = []
        self.keeper = TbtCapKeeper(
            folder / "caps.json",
            known,
            predicting,
            control_plane,
            clock=lambda: self.now_s,
            publish=lambda event: self.changes.append(dict(event.floors_s)),
        )

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 10.0
            await self.keeper.look()


@pytest.fixture
def looks(tmp_path: Path, known: Telemetry, control_plane: ControlPlane) -> Looks:
    return Looks(tmp_path, known, control_plane)


async def test_steps_are_planned_for_the_others_target_when_a_tenant_costs_more_than_it_may(
    looks: Looks, known: Telemetry, control_plane: ControlPlane
) -> None:
    await looks.look(BEGINS_AFTER)
    assert looks.changes == [{"chat": 0.06}]
    (entry,) = control_plane.audit(action="tbt_cap.begin")
    assert (entry.who, entry.tenant, entry.after["planned_tbt_ms"]) == ("pdmuxd", "chat", 60.0)
    marks = [mark for mark in known.recorder.take().marks if mark.tenant == "chat"]
    assert "chat: capped, steps are planned for TBT 60 ms, since its own target cost" in marks[-1].text
    (load,) = [one for one in tenants_event(known).tenants if one.tenant == "chat"]
    assert load.planned_tbt_ms == 60.0
    assert load.tbt_capped_since is not None
    known.in_flight = lambda: {"chat": 1, "search": 2}
    known.on_message(step(now_s=41.0))
    assert known.decisions.snapshot()[-1].tbt_capped == ("chat",)
    strictest = known.stats_event(known.clock()).strictest_tbt
    assert strictest is not None
    assert (strictest.tenant, strictest.tbt_ms) == ("search", 60.0), "it is not the capped tenant's target"


async def test_a_cap_is_kept_when_the_daemon_is_restarted(
    looks: Looks, tmp_path: Path, known: Telemetry, control_plane: ControlPlane
) -> None:
    await looks.look(BEGINS_AFTER)
    again = Looks(tmp_path, known, control_plane)
    assert again.keeper.floors_s() == {"chat": 0.06}
    await again.look(2)
    assert again.changes == []
    (tmp_path / "caps.json").write_text("[")
    assert Looks(tmp_path, known, control_plane).keeper.caps() == {}


async def test_a_tenant_is_free_at_once_when_its_limit_is_removed(
    looks: Looks, known: Telemetry, control_plane: ControlPlane
) -> None:
    await looks.look(BEGINS_AFTER)
    control_plane.update_tenant("chat", max_tbt_cost_ratio=None)
    known.on_directory(control_plane.directory)
    looks.keeper.on_directory(DirectoryChanged(control_plane.directory))
    assert looks.changes[1:] == [{}]
    await looks.look()
    assert [entry.action for entry in control_plane.audit(tenant="chat", action="tbt_cap.end")]
    assert looks.keeper.caps() == {}


async def test_nobody_is_capped_when_a_target_may_cost_what_it_likes(
    looks: Looks, control_plane: ControlPlane, known: Telemetry
) -> None:
    for most in (None, 1.0):
        control_plane.update_tenant("chat", max_tbt_cost_ratio=most)
        known.on_directory(control_plane.directory)
        await looks.look(BEGINS_AFTER + 1)
    assert looks.changes == []
    assert control_plane.audit(action="tbt_cap.begin") == []


async def test_a_cap_holds_when_it_cannot_be_recorded(
    looks: Looks, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(control_plane, "record_action", full)
    await looks.look(BEGINS_AFTER)
    assert looks.changes == [{"chat": 0.06}]


async def test_the_prefill_time_that_a_target_costs_is_counted_until_it_is_capped(
    looks: Looks, known: Telemetry
) -> None:
    metrics = Metrics()
    metrics.use_tenants(known.directory.tenants)
    metrics.registry.register(TbtCostCollector(looks.keeper, metrics.tenants))
    name = "pdmuxd_tbt_cost_prefill_seconds_total"
    assert value(metrics, name, tenant="chat") == 0.0
    await looks.look()
    await looks.look()
    ratio = value(metrics, "pdmuxd_tbt_cost_ratio", tenant="chat")
    assert ratio > 0.0
    assert value(metrics, name, tenant="chat") == pytest.approx(10.0 * ratio)
    assert value(metrics, "pdmuxd_tbt_capped", tenant="chat") == 1.0
    assert value(metrics, "pdmuxd_tbt_capped", tenant="search") == 0.0
    await looks.look()
    assert value(metrics, name, tenant="chat") == pytest.approx(10.0 * ratio), "what is capped costs nothing"


async def test_nothing_is_counted_when_there_is_no_engine(looks: Looks, known: Telemetry) -> None:
    known.status = lambda: NO_ENGINE
    await looks.look(3)
    assert looks.keeper.cost_s == {}


def serve_code(known: Telemetry) -> None:
    """A third tenant, nearly as strict as `chat`, that decodes as long."""
    now_s = known.clock()
    for number in range(30):
        record = request_record(request_id=f"code{number}", tenant="code", new_tokens=400)
        known.recent.on_request(record, arrived_s=now_s - 35.0 + number, now_s=now_s)


async def test_the_next_strict_tenant_is_capped_too_when_the_strictest_gave_way(
    control_plane: ControlPlane, known: Telemetry, looks: Looks
) -> None:
    await looks.look(BEGINS_AFTER)
    control_plane.create_tenant("code", slo(0.013), max_tbt_cost_ratio=0.0)
    known.on_directory(control_plane.directory)
    serve_code(known)
    await looks.look()
    assert looks.changes == [{"chat": 0.06}, {"chat": 0.013}], "the others' strictest is another"
    await looks.look(BEGINS_AFTER)
    assert looks.keeper.floors_s() == {"chat": 0.06, "code": 0.06}, "both at what search asks for"
    await looks.look(3 * ENDS_AFTER)
    assert looks.keeper.floors_s() == {"chat": 0.06, "code": 0.06}
    assert control_plane.audit(action="tbt_cap.end") == [], "nobody is capped and freed in turns"
    assert {cost.tenant for cost in looks.keeper.costs() if cost.prefill_ratio > 0.0} == {"chat", "code"}


async def test_a_capped_tenant_is_free_when_another_that_may_is_as_strict(
    control_plane: ControlPlane, known: Telemetry, looks: Looks
) -> None:
    await looks.look(BEGINS_AFTER)
    control_plane.create_tenant("code", slo(0.011))
    known.on_directory(control_plane.directory)
    serve_code(known)
    await looks.look(ENDS_AFTER)
    assert looks.keeper.floors_s() == {}
    costs = {cost.tenant: (cost.others_tbt_s, cost.prefill_ratio) for cost in looks.keeper.costs()}
    assert costs["chat"] == (0.011, 0.0)
