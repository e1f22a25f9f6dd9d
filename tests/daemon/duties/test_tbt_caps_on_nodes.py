"""Who is capped on two nodes that share one PostgreSQL: each by what its own engine had to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from postgres_server import PostgresServer, find_programs
from stores import AdminCalls, opened, slo
from telemetry_feeds import START_S, loaded_telemetry, predicting

from pdmuxd.controlplane.outlook.tbt_cap_rules import BEGINS_AFTER
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.bus import DirectoryChanged
from pdmuxd.daemon.duties.tbt_cap_check import TbtCapKeeper

PROGRAMS = find_programs()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql"),
]
COSTS = "/api/v1/what-if/tbt-costs"


class Node:
    """One daemon's part of it: its own telemetry and its own file."""

    def __init__(self, folder: Path, control_plane: ControlPlane, *, seconds: int) -> None:
        self.control_plane = control_plane
        self.known = loaded_telemetry(control_plane.directory, seconds=seconds)
        self.keeper = TbtCapKeeper(
            folder / "caps.json",
            self.known,
            predicting,
            control_plane,
            clock=lambda: START_S,
            publish=lambda _: None,
        )
        self.call = AdminCalls(
            control_plane, telemetry=self.known, predictors=predicting, known_costs=self.keeper.costs
        )

    def refresh(self) -> None:
        """What the other node changed, as a daemon learns of it."""
        self.control_plane.refresh()
        self.known.on_directory(self.control_plane.directory)
        self.keeper.on_directory(DirectoryChanged(self.control_plane.directory))

    async def look(self) -> None:
        for _ in range(BEGINS_AFTER):
            await self.keeper.look()

    async def capped(self) -> list[tuple[str, float]]:
        """Over REST: who is capped on this node, and what steps are planned for."""
        answer = await self.call("GET", COSTS)
        assert answer.status_code == 200, answer.text
        return [(one["tenant"], one["planned_tbt_ms"]) for one in answer.json() if one["capped_since"]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """`chat` is strict beside `search` on one node; the other has served next to nothing."""
    assert PROGRAMS is not None
    with ExitStack() as stack:
        server = PostgresServer(PROGRAMS)
        stack.callback(server.close)
        url = server.new_database()
        made = []
        for name, seconds in (("busy", 40), ("calm", 2)):
            control_plane = stack.enter_context(opened(url))
            if not made:
                control_plane.create_tenant("chat", slo(0.011), max_tbt_cost_ratio=0.0)
                control_plane.create_tenant("search", slo(0.06))
            control_plane.refresh()
            (tmp_path / name).mkdir()
            made.append(Node(tmp_path / name, control_plane, seconds=seconds))
        yield made[0], made[1]


async def test_a_tenant_is_capped_only_where_it_costs_others_and_free_on_both_when_its_limit_goes(
    nodes: tuple[Node, Node],
) -> None:
    busy, calm = nodes
    await busy.look()
    await calm.look()
    assert await busy.capped() == [("chat", 60.0)]
    assert await calm.capped() == []
    assert busy.keeper.floors_s() == {"chat": 0.06}
    assert calm.keeper.floors_s() == {}

    # The limit is one for all nodes, and whichever is asked tells of the cap on which node it is.
    listed = [(await node.call("GET", "/api/v1/tenants/chat")).json() for node in nodes]
    assert [one["max_tbt_cost_ratio"] for one in listed] == [0.0, 0.0]
    for node in nodes:
        entries = (await node.call("GET", "/api/v1/audit?action=tbt_cap.begin")).json()["entries"]
        assert [(one["tenant"], one["after"]["node"]) for one in entries] == [("chat", socket.gethostname())]

    calm.control_plane.update_tenant("chat", max_tbt_cost_ratio=None)
    busy.refresh()
    calm.refresh()
    assert await busy.capped() == await calm.capped() == []
