"""The price list over REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.controlplane.api.bodies import Body
from pdmuxd.controlplane.api.etags import IfMatch, expected_version, tag
from pdmuxd.controlplane.api.problems import documented
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.prices import (
    AMOUNT_ALLOWED,
    CURRENCY_ALLOWED,
    EVERY,
    MODEL_MAX,
    MOST_PRICES,
    Price,
    PriceList,
    amount,
    as_text,
    priced,
)
from pdmuxd.controlplane.tenants.tenant_fields import NAME_ALLOWED, NAME_MAX

_AMOUNT_MAX = 16
_EXAMPLE: JsonDict = {"tenant": None, "model": None, "input": "0.15", "cached": "0.03", "output": "0.6"}
_OF_TENANT = "Whose tokens; null: of all tenants without a price of their own."
_OF_MODEL = "Of which model; null: of every one."
_INPUT = "Price of a million prompt tokens that are computed, in the list's currency."
_CACHED = "Price of a million prompt tokens from the prefix cache, in the list's currency."
_OUTPUT = "Price of a million tokens that are produced, in the list's currency."
_PRICES = "A price for each tenant and model that has one."


class PriceIn(Body):
    """What a million tokens of each kind cost."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    allowed: ClassVar[Mapping[str, str]] = {
        "tenant": f"null, or the name of a tenant, {NAME_ALLOWED}",
        "model": f"null, or 1 to {MODEL_MAX} characters",
        "input": AMOUNT_ALLOWED,
        "cached": AMOUNT_ALLOWED,
        "output": AMOUNT_ALLOWED,
    }

    tenant: str | None = Field(None, strict=True, min_length=1, max_length=NAME_MAX, description=_OF_TENANT)
    model: str | None = Field(None, strict=True, min_length=1, max_length=MODEL_MAX, description=_OF_MODEL)
    input: str = Field(strict=True, max_length=_AMOUNT_MAX, description=_INPUT)
    cached: str = Field(strict=True, max_length=_AMOUNT_MAX, description=_CACHED)
    output: str = Field(strict=True, max_length=_AMOUNT_MAX, description=_OUTPUT)

    def to_price(self) -> Price:
        """Convert. Raises: InvalidValueError."""
        return Price(
            tenant=self.tenant or EVERY,
            model=self.model or EVERY,
            input=amount("input", self.input),
            cached=amount("cached", self.cached),
            output=amount("output", self.output),
        )


class PricesIn(Body):
    """The whole list: what it does not have costs nothing, and is not told in money."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"currency": "EUR", "prices": [_EXAMPLE]}]})
    allowed: ClassVar[Mapping[str, str]] = {
        "currency": f"null without prices, and {CURRENCY_ALLOWED}",
        "prices": f"up to {MOST_PRICES} prices, one for each tenant and model",
    }

    currency: str | None = Field(None, strict=True, description="Of all prices.")
    prices: list[PriceIn] = Field(max_length=MOST_PRICES, description=_PRICES)

    def to_list(self) -> PriceList:
        """Convert. Raises: InvalidValueError."""
        return priced(self.currency, [price.to_price() for price in self.prices])


class PriceOut(BaseModel):
    """What a million tokens of each kind cost; decimal numbers as text."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    tenant: str | None = Field(description=_OF_TENANT)
    model: str | None = Field(description=_OF_MODEL)
    input: str = Field(description=_INPUT)
    cached: str = Field(description=_CACHED)
    output: str = Field(description=_OUTPUT)


class PricesOut(BaseModel):
    """The price list that holds."""

    currency: str | None = Field(examples=["EUR"], description="Null without prices.")
    prices: list[PriceOut] = Field(description=_PRICES)
    version: int = Field(description="The settings version of the last change; also the ETag.")

    @classmethod
    def of(cls, found: PriceList) -> Self:
        lines = [
            PriceOut(
                tenant=price.tenant or None,
                model=price.model or None,
                input=as_text(price.input),
                cached=as_text(price.cached),
                output=as_text(price.output),
            )
            for price in found.prices
        ]
        return cls(currency=found.currency, prices=lines, version=found.version)


def price_routes(control_plane: ControlPlane) -> APIRouter:
    """`/prices`."""
    router = admin_router(prefix="/prices", tags=["prices"])

    def answer(found: PriceList, response: Response) -> PricesOut:
        tag(response, found.version)
        return PricesOut.of(found)

    @router.get("", responses=documented())
    def get_prices(response: Response) -> PricesOut:
        """Show what tokens cost."""
        return answer(control_plane.prices.current(), response)

    @router.put("", responses=documented(412))
    def set_prices(body: PricesIn, response: Response, if_match: IfMatch = None) -> PricesOut:
        """Set the whole price list. Usage is told by the list that holds when it is asked for."""
        prices = [price.to_price() for price in body.prices]
        expected = expected_version(if_match)
        return answer(control_plane.prices.set(body.currency, prices, expected_version=expected), response)

    return router
