"""What the last changes did, over a restart of the daemon."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from telemetry_feeds import HELLO, HandClock, directory, request_record, step, telemetry

from pdmuxd.controlplane.telemetry.effects import KEPT, Effect
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.daemon.duties.kept_effects import EffectsKeeper, duties


class Node:
    """A daemon's telemetry and what it keeps, from one start to the next."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "effects.json"
        self.clock = HandClock()
        self.start()

    def start(self) -> None:
        self.known: Telemetry = telemetry(self.clock, chat=0.04)
        self.keeper = EffectsKeeper(self.path, self.known.effects)
        self.known.on_message(HELLO)
        self.version = 1

    def edit(self, tbt_s: float) -> None:
        self.version += 1
        self.known.on_directory(directory(self.version, chat=tbt_s))

    def serve(self, seconds: int) -> None:
        for _ in range(seconds):
            self.known.on_request(request_record(request_id=f"c{self.clock.now_s}", ttft_s=0.3))
            self.known.on_message(step(now_s=self.clock.now_s))
            self.clock.turn(1.0)
            self.known.tick()

    def all(self) -> list[Effect]:
        return self.known.effects.all()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_what_a_change_did_is_known_when_the_daemon_was_restarted(node: Node) -> None:
    node.serve(60)
    node.edit(0.03)
    node.serve(301)
    node.edit(0.05)
    node.serve(70)
    node.edit(0.06)
    before = node.all()
    assert [one.state for one in before] == ["too_early", "measured", "measured"]
    await node.keeper.write()
    node.start()
    last, *others = node.all()
    assert others == before[1:]
    assert others[1].after is not None
    assert others[1].after.tenants["chat"].ttft_ms.p99 == pytest.approx(300, rel=0.04)
    assert (last.text, last.state, last.after) == ("TBT 50 to 60 ms", "overtaken", None)


async def test_a_comparison_ends_with_what_was_counted_when_the_daemon_is_restarted(node: Node) -> None:
    node.serve(60)
    node.edit(0.03)
    node.serve(100)
    await node.keeper.write()
    node.start()
    node.serve(100)
    (effect,) = node.all()
    assert effect.state == "measured"
    assert effect.after is not None
    assert effect.after.length_s == 100.0


async def test_the_newest_come_first_when_more_changes_follow_a_restart(node: Node) -> None:
    for number in range(1, KEPT + 4):
        node.edit(0.04 + number / 1000)
        node.clock.turn(1.0)
    await node.keeper.write()
    node.start()
    assert [one.text for one in node.all()[:2]] == ["TBT 58 to 59 ms", "TBT 57 to 58 ms"]
    assert len(node.all()) == KEPT
    node.edit(0.08)
    assert node.all()[0].text == "TBT 40 to 80 ms"
    assert node.all()[1].text == "TBT 58 to 59 ms"


async def test_it_is_written_when_a_change_comes_and_when_the_daemon_stops(node: Node) -> None:
    async with AsyncExitStack() as stack:
        for duty in duties(node.keeper):
            duty.start(stack)
        node.edit(0.03)
        while not node.path.exists():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        node.serve(80)
    node.start()
    (effect,) = node.all()
    assert effect.after is not None
    assert effect.after.length_s == 80.0


async def test_nothing_is_written_when_nothing_was_changed(node: Node) -> None:
    node.serve(60)
    await node.keeper.write()
    assert not node.path.exists()


@pytest.mark.parametrize("spoilt", ["[", '{"effects": [{"at_s": 1.0}]}', '{"effects": 1}'])
async def test_the_daemon_starts_without_it_when_the_file_is_spoilt(node: Node, spoilt: str) -> None:
    node.path.write_text(spoilt)
    with capture_logs() as logged:
        node.start()
    assert node.all() == []
    assert [entry["event"] for entry in logged] == ["what changes did before cannot be read"]


async def test_a_full_disk_is_told_and_what_is_known_stays_when_it_cannot_be_written(node: Node) -> None:
    node.path.with_suffix(".new").mkdir()
    node.edit(0.03)
    with capture_logs() as logged:
        await node.keeper.write()
    assert [entry["event"] for entry in logged] == ["what changes did is not kept over a restart"]
    assert [one.text for one in node.all()] == ["TBT 40 to 30 ms"]
