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
            assert caught.value.status == (400 if outputs > 5 else 429)
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


def admitted(admission, tenant, wanted, *, tenant_max=256, weight=1.0, outputs=1):
    """How many of `wanted` requests find a place."""
    count = 0
    for _ in range(wanted):
        try:
            admission.enter(tenant, tenant_max, weight=weight)
        except RequestError:
            continue
        try:
            admission.grow(tenant, tenant_max, outputs=outputs, weight=weight)
        except RequestError:
            admission.leave(tenant)
            continue
        count += 1
    return count


def flooded(*, known=6, outputs=1, weights=(1.0,) * 5):
    """A node of 1,024 places that five tenants, each with a limit of 256, have flooded for a while."""
    admission = Admission(1024)
    admission.expect(known)
    for _ in range(300):
        for index, weight in enumerate(weights):
            name = f"flood-{index}"
            admitted(admission, name, 3, weight=weight, outputs=outputs)
            if name in admission.by_tenant():
                admission.leave(name, outputs)
    return admission


def test_a_sixth_tenant_finds_its_share_when_five_flood_the_node():
    admission = flooded()
    share = admission.share("sixth")
    assert share == 1024 // 6

    at_once = admitted(admission, "sixth", 300)
    # Requests of the five end and are followed by others.
    for turn in range(300):
        name = f"flood-{turn % 5}"
        admission.leave(name)
        admitted(admission, name, 5)
        admitted(admission, "sixth", 1)

    assert at_once >= share
    held = admission.by_tenant()
    assert held["sixth"] >= share
    assert min(held.values()) >= share


def test_heavier_tenants_have_more_places_when_all_flood_the_node():
    admission = Admission(1000)
    admission.expect(3)
    weights = {"a": 1.0, "b": 1.0, "c": 3.0}
    held_by_one = [
        name for name in "abc" if admitted(admission, name, 1, tenant_max=1000, weight=weights[name])
    ]
    assert held_by_one == ["a", "b", "c"]
    for _ in range(1000):
        for name, weight in weights.items():
            admitted(admission, name, 2, tenant_max=1000, weight=weight)
        for name in weights:
            admission.leave(name)
    held = admission.by_tenant()
    assert abs(held["c"] - 600) <= 10
    assert abs(held["a"] - 200) <= 10


def test_a_place_is_taken_for_each_answer_when_the_node_is_flooded_with_many_of_each():
    admission = flooded(outputs=8)
    assert admission.in_flight % 8 == 0
    assert admitted(admission, "sixth", 30, outputs=8) == admission.share("sixth") // 8


def test_all_places_are_taken_when_there_is_one_tenant():
    admission = Admission(1024)
    admission.expect(1)
    assert admitted(admission, "only", 2000, tenant_max=65536) == 1024


def test_a_quarter_stays_free_when_one_of_several_tenants_floods_the_node():
    admission = Admission(1024)
    admission.expect(2)
    assert admitted(admission, "a", 2000, tenant_max=65536) == 768
    assert admitted(admission, "b", 2000, tenant_max=65536) == 256
    assert admission.share("a") == admission.share("b") == 512
    for _ in range(600):
        admission.leave("a")
        admitted(admission, "a", 2, tenant_max=65536)
        admitted(admission, "b", 2, tenant_max=65536)
    assert dict(admission.by_tenant()) == {"a": 512, "b": 512}


@given(
    st.integers(1, 40),
    st.integers(0, 5),
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"), st.sampled_from([0.01, 1.0, 100.0]))),
)
def test_places_are_never_more_than_there_are_when_weights_differ(node_max, known, steps):
    admission = Admission(node_max)
    admission.expect(known)
    for coming, tenant, weight in steps:
        if coming:
            before = admission.by_tenant().get(tenant, 0)
            free = node_max - admission.in_flight
            got = admitted(admission, tenant, 1, tenant_max=1000, weight=weight)
            # Within its share a tenant is refused only when nothing is free.
            assert got or not free or before >= admission.share(tenant, weight)
        elif tenant in admission.by_tenant():
            admission.leave(tenant)
        assert 0 <= admission.in_flight == sum(admission.by_tenant().values()) <= node_max
