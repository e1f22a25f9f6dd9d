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


@given(st.lists(st.tuples(TENANTS, st.integers(1, 7)), max_size=30))
def test_places_are_those_of_all_answers_when_requests_make_several(requests):
    admission = Admission(10)
    inside = []
    for tenant, outputs in requests:
        try:
            admission.enter(tenant, 5)
        except RequestError:
            continue
        if outputs > 5 or admission.in_flight - 1 + outputs > 10 or _of(inside, tenant) + outputs > 5:
            with pytest.raises(RequestError) as caught:
                admission.grow(tenant, 5, outputs=outputs)
            assert caught.value.status == (422 if outputs > 5 else 429)
            admission.leave(tenant)
        else:
            admission.grow(tenant, 5, outputs=outputs)
            inside.append((tenant, outputs))
        assert admission.in_flight == sum(places for _, places in inside) <= 10
        assert all(places <= 5 for places in admission.by_tenant().values())
    for tenant, places in inside:
        admission.leave(tenant, places)
    assert (admission.in_flight, dict(admission.by_tenant())) == (0, {})


def _of(inside, tenant):
    return sum(places for name, places in inside if name == tenant)


async def test_waiting_ends_when_the_last_place_is_given_back():
    admission = Admission(2)
    await admission.wait_idle()
    admission.enter("a", 1)
    admission.leave("a")
    await admission.wait_idle()
