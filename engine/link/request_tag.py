"""What the gateway says of a request to the engine where the request's own body has no field for it.

It travels as a header of HTTP. Only the gateway can send one: the engine asks for a key that nobody else has.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from pdmuxd.engine.core.errors import RequestError

TAG_HEADER = "x-pdmuxd-tag"
TENANT_PARAM = "pdmuxd_tenant"


class RequestTag(msgspec.Struct, frozen=True, kw_only=True):
    """The id by which it can be aborted, where its prompt is cached, and its custom parameters."""

    rid: str
    extra_key: str
    custom_params: dict[str, str | float]
    """As in the bodies that have such a field."""

    def encode(self) -> str:
        """As a header's value: what a client wrote into its cache salt may be any text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode("ascii")


def decode_tag(header: str) -> RequestTag:
    """Read the header. Raises: RequestError 400."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(header), type=RequestTag)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise RequestError(f"the header {TAG_HEADER} is malformed", status=400, code="invalid_tag") from None
