"""Which price holds, and what tokens come to."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.prices import EVERY, MOST_PRICES, Price, PriceList, amount, as_text
from pdmuxd.engine.core.errors import InvalidValueError, StaleVersionError

AMOUNTS = st.decimals(min_value=0, max_value=10**6, places=6)


def price(tenant: str = EVERY, model: str = EVERY, each: str = "1") -> Price:
    return Price(tenant=tenant, model=model, input=Decimal(each), cached=Decimal(each), output=Decimal(each))


@pytest.mark.parametrize(
    ("tenant", "model", "holds"),
    [("chat", "m", "4"), ("chat", "other", "3"), ("else", "m", "2"), ("else", "other", "1")],
)
def test_a_tenants_price_goes_before_a_models(tenant: str, model: str, holds: str) -> None:
    prices = (price(), price(model="m", each="2"), price("chat", each="3"), price("chat", "m", "4"))
    found = PriceList(currency="EUR", prices=prices).price_of(tenant, model)
    assert found is not None
    assert found.output == Decimal(holds)


def test_nothing_is_told_without_a_price() -> None:
    found = PriceList(currency="EUR", prices=(price("chat"),))
    assert found.cost("else", "m", input_tokens=5, cached_tokens=0, output_tokens=0) is None


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_cost_is_exact_to_half_a_millionth(
    a: Decimal, b: Decimal, c: Decimal, new: int, cached: int, out: int
) -> None:
    found = PriceList(currency="EUR", prices=(Price(input=a, cached=b, output=c),))
    cost = found.cost("chat", "m", input_tokens=new, cached_tokens=cached, output_tokens=out)
    exact = sum(int(each * 10**6) * count for each, count in ((a, new), (b, cached), (c, out)))
    assert cost is not None
    assert abs(int(cost * 10**6) * 10**6 - exact) <= 10**6 // 2


@given(AMOUNTS)
def test_an_amount_is_read_as_it_was_written(wanted: Decimal) -> None:
    assert amount("input", as_text(wanted)) == wanted


@pytest.mark.parametrize("text", ["", "-1", "1e3", "NaN", "1.1234567", "1,5", ".5", "1" * 10, "\u0661"])
def test_an_amount_that_is_no_decimal_is_named(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"output is .*; allowed are decimal numbers"):
        amount("output", text)


def test_the_list_is_kept_as_it_was_set(control_plane: ControlPlane) -> None:
    prices = control_plane.prices
    assert prices.current() == PriceList()
    control_plane.create_tenant("chat")
    lines = [price("chat", "m", "999999999.999999"), price(each="0.000001")]
    after = prices.set("EUR", lines, expected_version=0)
    assert prices.current() == after
    assert (after.currency, after.prices) == ("EUR", (lines[1], lines[0]))
    assert prices.set("EUR", lines[::-1]).version == after.version, "the same again changes nothing"
    with pytest.raises(StaleVersionError):
        prices.set(None, [], expected_version=after.version - 1)
    entry = control_plane.audit(action="prices.set")[0]
    assert isinstance(entry.after, dict)
    assert [line["input"] for line in entry.after["prices"]] == ["0.000001", "999999999.999999"]
    gone = prices.set(None, [])
    assert (gone.currency, gone.prices, prices.current()) == (None, (), gone)


def test_a_deleted_tenant_keeps_its_price(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    control_plane.prices.set("EUR", [price("chat")])
    control_plane.delete_tenant("chat")
    assert len(control_plane.prices.set("USD", [price("chat"), price()]).prices) == 2


@pytest.mark.parametrize(
    ("currency", "lines", "said"),
    [
        (None, [price()], "currency is None; allowed are three capital letters"),
        ("eur", [price()], "currency is 'eur'"),
        ("EUR", [price("nobody")], "there is no tenant 'nobody'"),
        ("EUR", [price(), price()], "2 lines of tenant null and model null; allowed is one"),
        ("EUR", [price(model=str(n)) for n in range(MOST_PRICES + 1)], "1001 lines; allowed are up to 1000"),
    ],
)
def test_what_is_wrong_in_a_list_is_named(
    control_plane: ControlPlane, currency: str | None, lines: list[Price], said: str
) -> None:
    with pytest.raises(InvalidValueError, match=said):
        control_plane.prices.set(currency, lines)
    assert control_plane.prices.current() == PriceList()
