"""Three nodes behind SGLang's router, started as docs/routers.md says: what goes wrong stays where it is."""

import contextlib

import pytest
from postgres_server import find_programs
from router_fleet import LIMIT, NODES, Fleet, faults, router_python

FLOOD_S = 4.0
PYTHON = router_python()
pytestmark = [
    pytest.mark.skipif(find_programs() is None, reason="needs PostgreSQL: apt-get install postgresql"),
    pytest.mark.skipif(
        PYTHON is None, reason="needs sglang-router: pip install sglang-router, $PYTHON_ROUTERS"
    ),
]


def test_other_tenants_lose_only_what_was_in_flight_on_a_node_that_is_gone(tmp_path):
    with contextlib.closing(Fleet(tmp_path, "sglang", PYTHON)) as fleet:
        found = {one.what: one for one in faults(fleet, FLOOD_S)}
    for what, one in found.items():
        assert one.answers, what
        assert one.lost_later == [], what
        # A request may come between the count and the kill.
        most = one.in_flight + 1 if what.startswith("a killed") else 0
        assert len(one.lost_in_flight) <= most, (what, one.lost_in_flight)
    wrong = found["wrong keys"].others
    assert {one.status for one in wrong} <= {401, 429}
    limited = found["a tenant over its limit"].others
    assert sum(one.status == 200 for one in limited) <= LIMIT * NODES
    assert {one.status for one in limited} == {200, 429}
