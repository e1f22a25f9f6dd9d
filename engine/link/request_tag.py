"""What the gateway says of a request to the engine where the request's own body has no field for it.

It travels as a header of HTTP. Only the gateway can send one: the engine asks for a key that nobody else has.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import (
    E2E_RANGE_S,
    E2E_SHARE_RANGE,
    TBT_RANGE_S,
    TTFT_FIXED_RANGE_S,
    RequestTargets,
)

TAG_HEADER = "x-pdmuxd-tag"
TENANT_PARAM = "pdmuxd_tenant"
TTFT_PARAM = "pdmuxd_ttft_target_s"
TBT_PARAM = "pdmuxd_tbt_target_s"
E2E_PARAM = "pdmuxd_e2e_target_s"
E2E_SHARE_PARAM = "pdmuxd_e2e_share"
"""A request's custom parameters: whose it is, and its own targets where it has any."""


class RequestTag(msgspec.Struct, frozen=True, kw_only=True):
    """The id by which it can be aborted, where its prompt is cached, and its custom parameters."""

    rid: str
    extra_key: str
    custom_params: dict[str, str | float]
    """As in the bodies that have such a field."""

    def encode(self) -> str:
        """Encode as a header's value: what a client wrote into its cache salt may be any text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode("ascii")


def decode_tag(header: str) -> RequestTag:
    """Read the header. Raises: RequestError 400."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(header), type=RequestTag)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise RequestError(f"the header {TAG_HEADER} is malformed", status=400, code="invalid_tag") from None


def params_of(targets: RequestTargets | None) -> dict[str, float]:
    """A request's own targets as custom parameters."""
    if targets is None:
        return {}
    given = {TTFT_PARAM: targets.ttft_s, TBT_PARAM: targets.tbt_s, E2E_PARAM: targets.e2e_s}
    found = {name: value for name, value in given.items() if value is not None}
    return found if targets.e2e_share == 1.0 else {**found, E2E_SHARE_PARAM: targets.e2e_share}


def targets_in(params: Mapping[str, object]) -> RequestTargets | None:
    """The targets among custom parameters; what no gateway can have put there counts as none."""
    found = RequestTargets(
        ttft_s=_within(params.get(TTFT_PARAM), TTFT_FIXED_RANGE_S),
        tbt_s=_within(params.get(TBT_PARAM), TBT_RANGE_S),
        e2e_s=_within(params.get(E2E_PARAM), E2E_RANGE_S),
        e2e_share=_within(params.get(E2E_SHARE_PARAM), E2E_SHARE_RANGE) or 1.0,
    )
    return None if (found.ttft_s, found.tbt_s, found.e2e_s) == (None, None, None) else found


def _within(value: object, allowed: tuple[float, float]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not allowed[0] <= value <= allowed[1]:
        return None
    return float(value)
