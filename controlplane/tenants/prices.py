"""What tokens cost: one price list in one currency, by tenant and model, and what a use of tokens comes to.

Decimal throughout: a price is kept in millionths of the currency for a million tokens.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cached_property

from sqlalchemy import BigInteger, delete
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.audit import State
from pdmuxd.controlplane.database.row import Row
from pdmuxd.controlplane.database.transactions import Transactions, check_expected
from pdmuxd.controlplane.tenants.limit_values import SPEND, Limit
from pdmuxd.controlplane.tenants.tenant_fields import NAME_MAX
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.engine.core.errors import InvalidValueError

MODEL_MAX = 200
MOST_PRICES = 1000
"""Lines of the list: all are read for each answer, in milliseconds."""
CURRENCY = re.compile("[A-Z]{3}")
CURRENCY_ALLOWED = "three capital letters as in ISO 4217, such as EUR"
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
AMOUNT_ALLOWED = 'decimal numbers as text, up to 9 digits and 6 behind the point, such as "0.15"'
EVERY = ""
"""In the place of a tenant or a model: all that have no price of their own."""
NANOS_PER_CENT = 10**7
"""Budgets are counted in billionths (nanos) of the currency: a token is seldom worth a millionth."""
MOST_NANOS = 10**16
"""The largest budget. An answer that costs more counts as that much, so that the database holds the sum."""
_MILLIONTHS = 10**6
_SHOWN = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens of each kind cost. An empty tenant or model stands for every one."""

    tenant: str = EVERY
    model: str = EVERY
    input: Decimal
    """Prompt tokens that were computed."""
    cached: Decimal
    """Prompt tokens that were found in the prefix cache."""
    output: Decimal


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """All prices, in the order of tenant and model."""

    currency: str | None = None
    """None without any price."""
    prices: tuple[Price, ...] = ()
    version: int = 0
    """The settings version of its last change; 0 before the first."""

    def is_like(self, other: PriceList) -> bool:
        """Whether both have the same prices, whenever they were set."""
        return (self.currency, self.prices) == (other.currency, other.prices)

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, str], Price]:
        """Made once: usage asks for each of its lines."""
        return {(price.tenant, price.model): price for price in self.prices}

    def price_of(self, tenant: str, model: str) -> Price | None:
        """The price that holds: a tenant's goes before a model's, and either before that of all."""
        order = ((tenant, model), (tenant, EVERY), (EVERY, model), (EVERY, EVERY))
        return next((self._by_place[key] for key in order if key in self._by_place), None)

    def cost(
        self, tenant: str, model: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> Decimal | None:
        """What these tokens come to, rounded to a millionth of the currency; None without a price."""
        price = self.price_of(tenant, model)
        if price is None:
            return None
        whole = input_tokens * price.input + cached_tokens * price.cached + output_tokens * price.output
        return (whole / _MILLIONTHS).quantize(_SHOWN)

    def nanos(
        self, tenant: str, model: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> int | None:
        """The same in billionths of the currency, rounded up; None without a price."""
        price = self.price_of(tenant, model)
        if price is None:
            return None
        whole = input_tokens * price.input + cached_tokens * price.cached + output_tokens * price.output
        return min(MOST_NANOS, math.ceil(whole * 1000))

    def most_nanos(self, tenant: str, model: str, *, input_tokens: int, output_tokens: int) -> int | None:
        """What they cost at most, wherever the prompt is found; None without a price."""
        price = self.price_of(tenant, model)
        if price is None:
            return None
        whole = input_tokens * max(price.input, price.cached) + output_tokens * price.output
        return min(MOST_NANOS, math.ceil(whole * 1000))


NO_PRICES = PriceList()


class PriceRow(Row, table=True):
    """A line of the price list. The tenant may be gone: what it used is still billed."""

    __tablename__ = "prices"

    tenant: str = Field(primary_key=True, max_length=NAME_MAX)
    model: str = Field(primary_key=True, max_length=MODEL_MAX)
    input_micros: int = Field(sa_type=BigInteger)
    """Millionths of the currency for a million tokens; so are the others."""
    cached_micros: int = Field(sa_type=BigInteger)
    output_micros: int = Field(sa_type=BigInteger)


class PriceListRow(Row, table=True):
    """What all prices have in common: one row, or none before the first list."""

    __tablename__ = "price_list"

    id: int = Field(default=1, primary_key=True)
    currency: str | None = Field(default=None, max_length=3)
    settings_version: int


class Prices:
    """The price list in the database. Any method may raise StoreError."""

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def current(self) -> PriceList:
        with self._store.transaction() as session:
            return current_prices(session)

    def set(
        self, currency: str | None, prices: Sequence[Price], *, expected_version: int | None = None
    ) -> PriceList:
        """Put a list in the place of the one before; without a price there is no currency either.

        Raises: InvalidValueError naming what is wrong; StaleVersionError if `expected_version` does not hold.
        """
        with self._store.change() as change:
            before = current_prices(change.session)
            change.prices_changed = True
            check_expected(expected_version, before.version, "the price list")
            after = replace(priced(currency, prices), version=change.version)
            _check_tenants(change.session, {price.tenant for price in prices}, before)
            change.is_needless = after.is_like(before)
            old, new = write_prices(change.session, before, after)
            change.audit("prices.set", subject="prices", before=old, after=new)
        return before if change.is_needless else after


def require_prices(session: Session, limits: Iterable[Limit]) -> None:
    """Raises: InvalidValueError if one of these limits is of money, and nothing has a price."""
    of_money = next((limit.name for limit in limits if limit.name in SPEND), None)
    if of_money is not None and session.exec(select(PriceRow).limit(1)).first() is None:
        raise InvalidValueError(of_money, f"{of_money} needs a price list first: pdmuxd price set")


def priced(currency: str | None, prices: Sequence[Price]) -> PriceList:
    """A list that was asked for. Raises: InvalidValueError naming what is wrong."""
    _check(currency, prices)
    return PriceList(
        currency=currency if prices else None,
        prices=tuple(sorted(prices, key=lambda price: (price.tenant, price.model))),
    )


def write_prices(session: Session, before: PriceList, after: PriceList) -> tuple[State, State]:
    """Put a list in the place of another; what the audit says of both."""
    session.connection().execute(delete(PriceRow))
    session.add_all(_row(price) for price in after.prices)
    session.merge(PriceListRow(currency=after.currency, settings_version=after.version))
    return _audited(before, but=after), _audited(after, but=before)


def amount(field: str, text: str) -> Decimal:
    """A price as it is written. Raises: InvalidValueError naming the field."""
    if AMOUNT.fullmatch(text) is None:
        raise InvalidValueError(field, f"{field} is {text[:40]!a}; allowed are {AMOUNT_ALLOWED}")
    return Decimal(text)


def as_text(price: Decimal) -> str:
    """The price as it is written, without zeros at its end."""
    text = f"{price:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _check(currency: str | None, prices: Sequence[Price]) -> None:
    if prices and (currency is None or CURRENCY.fullmatch(currency) is None):
        raise InvalidValueError("currency", f"currency is {currency!a:.40}; allowed are {CURRENCY_ALLOWED}")
    if len(prices) > MOST_PRICES:
        raise InvalidValueError("prices", f"prices has {len(prices)} lines; allowed are up to {MOST_PRICES}")
    counts = Counter((price.tenant, price.model) for price in prices)
    for (tenant, model), count in counts.items():
        if count > 1:
            of = f"tenant {tenant or 'null'} and model {model or 'null'}"
            raise InvalidValueError("prices", f"prices has {count} lines of {of}; allowed is one")


def _check_tenants(session: Session, wanted: set[str], before: PriceList) -> None:
    """A tenant that is gone keeps the price that it had."""
    known = {EVERY, *(price.tenant for price in before.prices)}
    known.update(session.exec(select(TenantRow.name).where(col(TenantRow.name).in_(wanted))))
    for name in sorted(wanted - known):
        raise InvalidValueError("tenant", f"there is no tenant {name!a:.80}")


def current_prices(session: Session) -> PriceList:
    """The list that holds."""
    rows = session.exec(select(PriceRow).order_by(col(PriceRow.tenant), col(PriceRow.model))).all()
    changed = session.get(PriceListRow, 1)
    return PriceList(
        currency=None if changed is None else changed.currency,
        prices=tuple(
            Price(
                tenant=row.tenant,
                model=row.model,
                input=Decimal(row.input_micros) / _MILLIONTHS,
                cached=Decimal(row.cached_micros) / _MILLIONTHS,
                output=Decimal(row.output_micros) / _MILLIONTHS,
            )
            for row in rows
        ),
        version=0 if changed is None else changed.settings_version,
    )


def _row(price: Price) -> PriceRow:
    return PriceRow(
        tenant=price.tenant,
        model=price.model,
        input_micros=int(price.input * _MILLIONTHS),
        cached_micros=int(price.cached * _MILLIONTHS),
        output_micros=int(price.output * _MILLIONTHS),
    )


def _audited(found: PriceList, *, but: PriceList) -> State:
    """The currency, and the lines that the other list has not."""
    lines = [
        {
            name: as_text(value) if isinstance(value, Decimal) else value
            for name, value in asdict(price).items()
        }
        for price in found.prices
        if price not in but.prices
    ]
    return {"currency": found.currency, "prices": lines}
