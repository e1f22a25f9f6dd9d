"""Lets requests in under the limits of their tenant and key, and counts what they really used.

How many tokens a request takes is known only when it has ended. Until then the limits count as many as it may
take (`reserve.py`), for what a tenant's earlier requests took is in that tenant's own hand. Use is counted
from the engine's records, one for each answer. If the record of an answer was lost, what was reserved for it
is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pdmuxd.controlplane.services.limit_shares import Account
from pdmuxd.controlplane.tenants.limit_values import BOUNDS, NAMES, SPEND, Limit, LimitName
from pdmuxd.controlplane.tenants.prices import MODEL_MAX, NANOS_PER_CENT, NO_PRICES, PriceList
from pdmuxd.controlplane.tenants.records import Identity, TenantRecord
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.gateway.limits.meter import BUDGETS, Block, Meter, Need
from pdmuxd.daemon.gateway.limits.refusals import (
    READ_AND_REFUSED,
    change_of,
    longest_wait_s,
    refusal,
    shown,
)
from pdmuxd.daemon.gateway.limits.shares import Shares, name_of, period_of
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.link.messages import Hello, RequestRecord

Counts = tuple[tuple[Meter, tuple[Limit, ...]], ...]
"""What counts for a request, and the limits of each."""

_OTHERS_S = 1.0
"""A request that waits asks so often whether another node has given something back."""
RECORD_WITHIN_S = 60.0
"""How long after the end of an answer its record may come. Records travel in bundles, a few a second. When
the link is lost they wait in the engine, which is ended if it is not heard for 30 s."""
CHOICES_WITHIN_S = 5.0
"""The same of a request of several answers. SGLang gives choices of one prompt ids of their own: their
records count for the tenant, and nobody can tell which request is theirs."""


@dataclass(slots=True, kw_only=True)
class _Open:
    identity: Identity
    meters: tuple[Meter, ...]
    need: Need
    """What is reserved for the answers without a record yet."""
    answers: int
    """Answers without a record yet."""
    is_over: bool = False


class Limiter:
    """Lives in the event loop; `of_tenant` and `of_key` may be asked in any thread.

    Each `enter` that returns is matched by one `leave`. `clock` does not go back; `wall` is the time of day,
    by which budgets begin and end. `on_cost` is told what a tenant's answer has cost, in billionths of the
    currency.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_cost: Callable[[str, int], None] = lambda _tenant, _nanos: None,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._tenants: dict[str, Meter] = {}
        self._keys: dict[str, Meter] = {}
        self._records: Mapping[str, TenantRecord] = {}
        self._open: dict[str, _Open] = {}
        self._unsaved: dict[UseOf, Tokens] = {}
        self._prices = NO_PRICES
        self.model = ""
        """What is served, by whose prices tokens cost."""
        self._on_cost = on_cost
        self.shares: Shares | None = None
        """Where other nodes may share the limits."""

    # Requests

    def enter_now(self, rid: str, identity: Identity, need: Need) -> bool:
        """Let a request in if no limit is against it; False if it has to wait for its turn.

        Raises: RequestError 429 saying which limit refuses it; 503 if it is of money and nothing has a price.
        """
        self._price(identity, need)
        counts = self._counts(identity)
        block = self._block(identity, need, counts)
        if block is not None and block.limit.action == "refuse" and not self._may_grow(block):
            raise refusal(block)
        if block is not None or any(meter.is_waited_for for meter, _ in counts):
            return False
        self._take(rid, identity, need, counts)
        return True

    async def enter(self, rid: str, identity: Identity, need: Need) -> None:
        """Let a request in when its turn has come: first come, first served, of each key and each tenant.

        Raises: RequestError 429 if a limit refuses it, or its longest wait is over; 503 as `enter_now`.
        """
        self._price(identity, need)
        counts = self._counts(identity)
        waited_for: Block | None = None
        wait_s = longest_wait_s(identity)
        try:
            async with asyncio.timeout(wait_s), AsyncExitStack() as turns:
                for index, (meter, _) in enumerate(counts):
                    await turns.enter_async_context(meter.turn)
                    while True:
                        block = self._block(identity, need, counts[: index + 1])
                        if block is None:
                            break
                        if await self._grow(block, identity):
                            continue
                        if block.limit.action == "refuse":
                            raise refusal(block)
                        waited_for = block
                        await change_of(block, at_most_s=None if self.shares is None else _OTHERS_S)
                self._take(rid, identity, need, counts)
        except TimeoutError:
            block = self._block(identity, need, counts) or waited_for
            if block is None:
                raise RequestError(
                    f"others of tenant {identity.name} waited before this request for {wait_s:g} s",
                    status=429,
                    code="limit_wait",
                    retry_after_s=1,
                ) from None
            raise refusal(block, waited_s=wait_s) from None

    @contextmanager
    def reading(self, identity: Identity) -> Iterator[None]:
        """Wraps reading a request, which is most of the host's work for it: refused before that if there is
        no room for one in its minute; counted there if it was read and goes no further.

        Raises: RequestError 429, and what is raised within.
        """
        meters = []
        for meter, limits in self._counts(identity):
            of_requests = tuple([limit for limit in limits if limit.name == "requests_per_min"])
            if not of_requests:
                continue
            block = self._block(identity, Need(requests=1 + meter.readings), ((meter, of_requests),))
            if block is not None and block.limit.action == "refuse":
                is_all_used = block.used + block.wanted > block.limit.value  # no share makes room for more
                if is_all_used or not self._may_grow(block):
                    raise refusal(block)
            meters.append((meter, of_requests))
        for meter, _ in meters:
            meter.readings += 1
        try:
            yield
        except RequestError as error:
            if error.status in READ_AND_REFUSED:
                for meter, of_requests in meters:
                    meter.add_request(of_requests, self._clock())
            raise
        finally:
            for meter, _ in meters:
                meter.readings -= 1

    def leave(self, rid: str, *, was_served: bool) -> None:
        """A request that was let in is over. Its record may come a little later."""
        request = self._open.get(rid)
        if request is None or request.is_over:
            return
        request.is_over = True
        places = request.need.places
        for meter in request.meters:
            meter.release(places=places)
        if request.answers and was_served:
            within_s = RECORD_WITHIN_S if places == 1 else CHOICES_WITHIN_S
            asyncio.get_running_loop().call_later(within_s, self._give_up, rid)
        else:
            self._close(rid)

    def on_hello(self, hello: Hello) -> None:
        """An engine introduced itself: from now on its model is served."""
        self.model = hello.model[:MODEL_MAX]

    def on_request(self, record: RequestRecord) -> None:
        """The engine has told what an answer used."""
        kinds = {
            "input_tokens": record.new_tokens,
            "cached_tokens": record.reused_tokens,
            "output_tokens": record.output_tokens,
        }
        cost_nanos = self._prices.nanos(record.tenant, self.model, **kinds) or 0
        tokens = Tokens(**kinds, cost_nanos=cost_nanos)
        if cost_nanos and record.tenant in self._records:
            self._on_cost(record.tenant, cost_nanos)
        rid = record.request_id
        # A request of several prompts is several requests in the engine, numbered behind its id.
        rid = rid if rid in self._open else rid.rpartition("_")[0]
        request = self._open.get(rid)
        if request is None or not request.answers or request.identity.name != record.tenant:
            self._use(record.tenant, None, tokens)
            return
        self._settle(request, 1)
        self._use(record.tenant, request.identity.key.key_id, tokens)
        if not request.answers and request.is_over:
            self._close(rid)

    # Tenants, and what is kept of them

    def use_tenants(self, tenants: Mapping[str, TenantRecord]) -> None:
        """Forget the tenants that are gone."""
        self._records = tenants
        for gone in [name for name in self._tenants if name not in tenants]:
            del self._tenants[gone]

    def use_prices(self, prices: PriceList) -> None:
        """Let tokens cost that from now on."""
        self._prices = prices

    def load(self, uses: Mapping[UseOf, Tokens]) -> None:
        """Count what was used before this start of the daemon."""
        for use, tokens in uses.items():
            meter = self._tenant(use.tenant) if use.key_id == WHOLE_TENANT else self._key(use.key_id)
            meter.load(tokens, use.day)

    def counted_tenants(self) -> list[str]:
        """The tenants of which anything is counted here."""
        return sorted(self._tenants)

    def correct(self, stored: Mapping[UseOf, Tokens]) -> None:
        """Count what all nodes have used, as it is stored. Only what this node has not saved yet is missing
        in it."""
        for use, tokens in stored.items():
            unsaved = self._unsaved.get(use)
            meter = (
                self._tenants.get(use.tenant) if use.key_id == WHOLE_TENANT else self._keys.get(use.key_id)
            )
            if meter is not None:
                meter.correct(tokens if unsaved is None else tokens.plus(unsaved), use.day)

    def take_unsaved(self) -> dict[UseOf, Tokens]:
        """What was used since the last call."""
        unsaved, self._unsaved = self._unsaved, {}
        return unsaved

    def give_back(self, unsaved: Mapping[UseOf, Tokens]) -> None:
        """Take back what could not be stored: the next `take_unsaved` returns it again."""
        for use, tokens in unsaved.items():
            self._unsaved[use] = self._unsaved.get(use, Tokens()).plus(tokens)

    def of_tenant(self, tenant: str) -> dict[str, int]:
        """What all keys of the tenant have used, by limit."""
        record = self._records.get(tenant)
        return self._used(self._tenants.get(tenant), record is not None and record.count_cached_tokens)

    def of_key(self, key_id: str, tenant: str) -> dict[str, int]:
        """The same of one key."""
        record = self._records.get(tenant)
        return self._used(self._keys.get(key_id), record is not None and record.count_cached_tokens)

    def _used(self, meter: Meter | None, count_cached: bool) -> dict[str, int]:
        if meter is None:
            return {name: 0 for name in NAMES if name not in BOUNDS}
        now_s, today = self._clock(), self._wall().date()
        return {
            name: shown(name, meter.used(name, count_cached=count_cached, now_s=now_s, today=today))
            for name in NAMES
            if name not in BOUNDS
        }

    def _tenant(self, name: str) -> Meter:
        meter = self._tenants.get(name)
        if meter is None:
            meter = self._tenants[name] = Meter(f"tenant {name}")
        return meter

    def _key(self, key_id: str) -> Meter:
        meter = self._keys.get(key_id)
        if meter is None:
            meter = self._keys[key_id] = Meter(f"key {key_id}")
        return meter

    def _counts(self, identity: Identity) -> Counts:
        """Counts of the key, if it has limits, and of the tenant."""
        of_tenant = self._tenant(identity.name), _in_nanos(identity.tenant.limits)
        key = identity.key
        if not key.limits:
            return (of_tenant,)
        return (self._key(key.key_id), _in_nanos(key.limits)), of_tenant

    def _price(self, identity: Identity, need: Need) -> None:
        """Say what a request may cost. Raises: RequestError 503 if a limit of money holds without a price."""
        cost_nanos = self._prices.most_nanos(
            identity.name, self.model, input_tokens=need.input_tokens, output_tokens=need.output_tokens
        )
        need.cost_nanos = cost_nanos or 0
        of_money = [one.name for one in (*identity.key.limits, *identity.tenant.limits) if one.name in SPEND]
        if cost_nanos is None and of_money:
            raise RequestError(
                f"{of_money[0]} holds for this request, and model {self.model} has no price; the operator of "
                "this node has to set one",
                status=503,
                code="no_price",
            )

    def _block(self, identity: Identity, need: Need, counts: Counts) -> Block | None:
        if not identity.key.limits and not identity.tenant.limits:
            return None
        now_s, now, count_cached = self._clock(), self._wall(), identity.tenant.count_cached_tokens
        found: Block | None = None
        for meter, limits in counts:
            narrowed = self._narrowed(meter, limits, identity, now.date())
            block = meter.block(narrowed, need, count_cached=count_cached, now_s=now_s, now=now)
            if block is not None and narrowed is not limits:
                name = block.limit.name
                block = replace(block, limit=next(limit for limit in limits if limit.name == name))
            if block is not None and (found is None or block.limit.action == "refuse"):
                found = block
        return found

    def _take(self, rid: str, identity: Identity, need: Need, counts: Counts) -> None:
        now_s, today, count_cached = self._clock(), self._wall().date(), identity.tenant.count_cached_tokens
        for meter, limits in counts:
            limits = self._narrowed(meter, limits, identity, today)
            meter.take(need, limits, count_cached=count_cached, now_s=now_s, today=today)
        self._open[rid] = _Open(
            identity=identity,
            meters=tuple([meter for meter, _ in counts]),
            need=need,
            answers=need.places,
        )

    # Limits that several nodes share

    def _narrowed(
        self, meter: Meter, limits: tuple[Limit, ...], identity: Identity, today: date
    ) -> tuple[Limit, ...]:
        """The limits as far as this node may use them."""
        shares = self.shares
        if shares is None or not limits:
            return limits
        return tuple(
            shares.narrowed(
                meter.of, limit, today=today, stored=self._stored(meter, limit.name, identity, today)
            )
            for limit in limits
        )

    def _stored(self, meter: Meter, name: LimitName, identity: Identity, today: date) -> int:
        """What of a budget is stored as used, as far as it is known here; 0 of what is no budget."""
        first = period_of(name, today)
        if first is None:
            return 0
        count_cached = identity.tenant.count_cached_tokens
        spent = meter.spent(name, count_cached=count_cached, now_s=self._clock(), today=today)
        return spent - self._not_stored(meter, name, identity, first, today)

    def _not_stored(self, meter: Meter, name: LimitName, identity: Identity, first: date, today: date) -> int:
        key_id = WHOLE_TENANT if meter is self._tenants.get(identity.name) else identity.key.key_id
        return sum(
            tokens.counted_by(name, count_cached=identity.tenant.count_cached_tokens)
            for use, tokens in self._unsaved.items()
            if (use.tenant, use.key_id) == (identity.name, key_id) and first <= use.day <= today
        )

    def _may_grow(self, block: Block) -> bool:
        return self.shares is not None and self.shares.may_grow(
            block.meter.of, block.limit, self._wall().date()
        )

    async def _grow(self, block: Block, identity: Identity) -> bool:
        """Ask the other nodes for room; whether there is more than before."""
        shares = self.shares
        if shares is None or not self._may_grow(block):
            return False
        meter, name, today = block.meter, block.limit.name, self._wall().date()
        first = period_of(name, today)
        is_tenants = meter is self._tenants.get(identity.name)
        count_cached = identity.tenant.count_cached_tokens

        def held() -> int:
            used = meter.used(name, count_cached=count_cached, now_s=self._clock(), today=today)
            return used - self._stored(meter, name, identity, today)

        account = Account(
            subject=meter.of,
            name=name_of(name, first),
            value=block.limit.value,
            tenant=identity.name,
            key_id=WHOLE_TENANT if is_tenants else identity.key.key_id,
            first_day=first,
            count_cached=count_cached,
            is_money=name in SPEND,
        )
        return await shares.grow(account, needed=held() + block.wanted, held=held)

    def take_spent(self, unsaved: Mapping[UseOf, Tokens]) -> list[tuple[str, str, int]]:
        """How much smaller the shares of budgets become when this use is stored."""
        spent: list[tuple[str, str, int]] = []
        for use, tokens in unsaved.items() if self.shares is not None else ():
            record = self._records.get(use.tenant)
            subject = f"tenant {use.tenant}" if use.key_id == WHOLE_TENANT else f"key {use.key_id}"
            count_cached = record is not None and record.count_cached_tokens
            amounts = {name: tokens.counted_by(name, count_cached=count_cached) for name in BUDGETS}
            if self.shares is not None:
                spent += self.shares.spend(subject, use.day, amounts)
        return spent

    def _settle(self, request: _Open, answers: int) -> Tokens:
        """Give back what was reserved for so many answers."""
        need = request.need
        cost_nanos = need.cost_nanos * answers // request.answers
        inputs = need.input_tokens * answers // request.answers
        outputs = need.output_tokens * answers // request.answers
        request.answers -= answers
        need.input_tokens -= inputs
        need.output_tokens -= outputs
        need.cost_nanos -= cost_nanos
        for meter in request.meters:
            meter.release(input_tokens=inputs, output_tokens=outputs, cost_nanos=cost_nanos)
            if not request.answers:
                meter.forget(need)
        return Tokens(input_tokens=inputs, output_tokens=outputs, cost_nanos=cost_nanos)

    def _close(self, rid: str) -> None:
        request = self._open.pop(rid)
        if request.answers:
            self._settle(request, request.answers)

    def _give_up(self, rid: str) -> None:
        """Count what was reserved as used, since no record came."""
        request = self._open.pop(rid, None)
        if request is None or not request.answers:
            return
        # Several choices of one prompt get ids of their own in SGLang: their tenant is known, not their key.
        tenant_has_counted = request.need.places > 1
        tokens = self._settle(request, request.answers)
        self._use(
            request.identity.name, request.identity.key.key_id, tokens, of_tenant=not tenant_has_counted
        )

    def _use(self, tenant: str, key_id: str | None, tokens: Tokens, *, of_tenant: bool = True) -> None:
        """Count use for a tenant, and for its key if that has limits."""
        record = self._records.get(tenant)
        if record is None:
            return
        counted = [(WHOLE_TENANT, self._tenant(tenant))] if of_tenant else []
        if key_id is not None and (meter := self._keys.get(key_id)) is not None:
            counted.append((key_id, meter))
        now_s, today = self._clock(), self._wall().date()
        for whose, meter in counted:
            meter.use(tokens, count_cached=record.count_cached_tokens, now_s=now_s, today=today)
            self.give_back({UseOf(tenant, whose, today): tokens})


def _in_nanos(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """Limits of money in billionths of the currency, as they are counted."""
    if not any(limit.name in SPEND for limit in limits):
        return limits
    return tuple(
        replace(limit, value=limit.value * NANOS_PER_CENT) if limit.name in SPEND else limit
        for limit in limits
    )
