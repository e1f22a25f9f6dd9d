"""The invariant: places taken equal enters minus leaves, and no limit is ever exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.engine.core.errors import RequestError

TENANTS = st.sampled_from("abc")


@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.tuples(st.booleans(), TENANTS), max_size=60))
def test_no_limit_is_exceeded_when_requests_come_and_go(node_max, tenant_max, steps):
    admission = Admission(node_max)
    inside = []
    for coming, tenant in steps:
        if coming:
            full = len(inside) >= node_max or inside.count(tenant) >= tenant_max
            if full:
                with pytest.raises(RequestError) as caught:
                    admission.enter(tenant, tenant_max)
                assert caught.value.status == 429
            else:
                admission.enter(tenant, tenant_max)
                inside.append(tenant)
        elif tenant in inside:
            admission.leave(tenant)
            inside.remove(tenant)
        assert admission.in_flight == len(inside)
        assert dict(admission.by_tenant()) == {name: inside.count(name) for name in inside}


async def test_waiting_ends_when_the_last_place_is_given_back():
    admission = Admission(2)
    await admission.wait_idle()
    admission.enter("a", 1)
    admission.leave("a")
    await admission.wait_idle()
