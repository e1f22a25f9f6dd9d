"""What tenants and keys used of tokens, day by day: the values and their rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from sqlalchemy import BigInteger
from sqlmodel import Field

from pdmuxd.controlplane.database.row import Row
from pdmuxd.controlplane.tenants.limit_values import SPEND, LimitName

WHOLE_TENANT = ""
"""In the place of a key's id."""


class TokenUseRow(Row, table=True):
    """Tokens of one tenant, or of one of its keys, on one day (UTC)."""

    __tablename__ = "token_use"

    tenant_id: int = Field(primary_key=True, foreign_key="tenants.id", ondelete="CASCADE")
    key_id: str = Field(primary_key=True, max_length=20)
    """Empty for all keys of the tenant together."""
    day: date = Field(primary_key=True, index=True)
    input_tokens: int = Field(sa_type=BigInteger)
    """Of the prompts, without those that were found in the prefix cache."""
    cached_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    cost_nanos: int = Field(sa_type=BigInteger, sa_column_kwargs={"server_default": "0"})
    """Billionths of the currency, by the prices that held when each answer ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Some use: prompt tokens that were computed, prompt tokens from the prefix cache, tokens produced; and
    what they cost, in billionths of the currency."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_nanos=self.cost_nanos + other.cost_nanos,
        )

    def minus(self, other: Tokens) -> Tokens:
        """What is missing from `other`; below 0 where it has more."""
        return Tokens(
            input_tokens=self.input_tokens - other.input_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cost_nanos=self.cost_nanos - other.cost_nanos,
        )

    def beyond(self, other: Tokens) -> Tokens:
        """Subtract: by how much this is more, of each kind of token."""
        return Tokens(
            input_tokens=max(0, self.input_tokens - other.input_tokens),
            cached_tokens=max(0, self.cached_tokens - other.cached_tokens),
            output_tokens=max(0, self.output_tokens - other.output_tokens),
        )

    def counted_by(self, name: LimitName, *, count_cached: bool) -> int:
        """What a budget counts: tokens, or money."""
        return self.cost_nanos if name in SPEND else self.counted(count_cached=count_cached)

    def counted(self, *, count_cached: bool) -> int:
        """What a budget of tokens counts."""
        return self.input_tokens + self.output_tokens + (self.cached_tokens if count_cached else 0)


@dataclass(frozen=True, slots=True)
class UseOf:
    """The tenant or key whose use it is, and when; a `key_id` of WHOLE_TENANT stands for all keys
    together."""

    tenant: str
    key_id: str
    day: date
