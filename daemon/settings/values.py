"""Kinds of values that settings are made of, and the error that says what is allowed instead."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

NOT_ALLOWED = "not_allowed"
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?")
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{2,63}")
_OWN_HEADERS = frozenset({"host", "authorization", "cookie", "origin", "content-length", "content-type"})
"""They say something else, or a client's browser sends them."""
PROXY_ADDRESSES = 256
"""Of one network that is trusted to name anyone: a pod's or a container's network, not everybody."""
_DOTTED_NUMBERS = re.compile(r"[0-9.]+")


def not_allowed(text: str, *, key: str | None = None) -> PydanticCustomError:
    """An error whose `text` says what is allowed; `key` if another key than the checked one is wrong."""
    return PydanticCustomError(NOT_ALLOWED, "{text}", {"text": text, "key": key})


def _refuse_bool(value: object) -> object:
    """Refuse TOML's `true` where a number is meant; Python would take it for 1."""
    if isinstance(value, bool):
        raise ValueError("a number is not true or false")
    return value


WholeNumber = Annotated[int, BeforeValidator(_refuse_bool)]
Number = Annotated[float, BeforeValidator(_refuse_bool)]


def check_host(host: str) -> str:
    """Accept an IP address or a host name, nothing with a scheme, port or space."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        named = _HOST_NAME.fullmatch(host) and len(host) <= 253 and not _DOTTED_NUMBERS.fullmatch(host)
        if not named:
            raise not_allowed("allowed is an IP address or a host name, without a port") from None
    return host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def check_path(path: Path) -> Path:
    """Refuse the empty path, which would mean the working directory, and what no file can be called."""
    if path == Path() or "\0" in str(path):
        raise not_allowed("allowed is a path")
    try:
        path.expanduser()
    except RuntimeError as error:
        raise not_allowed(f"allowed is a path whose ~ stands for a home directory ({error})") from error
    return path


def check_networks(networks: str) -> str:
    """Accept IP addresses and networks with commas between, or nothing."""
    for each in filter(None, (each.strip() for each in networks.split(","))):
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            raise not_allowed("allowed are IP addresses and networks, with commas between") from None
    return networks


def check_header_name(name: str) -> str:
    """Accept a header that says who calls, or nothing."""
    if name and (not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS):
        raise not_allowed("allowed is the name of a header such as X-Forwarded-User, and none of HTTP's own")
    return name


def too_many(networks: str) -> bool:
    """Whether a list of networks holds one of more than `PROXY_ADDRESSES` addresses."""
    parts = filter(None, (each.strip() for each in networks.split(",")))
    return any(ipaddress.ip_network(each, strict=False).num_addresses > PROXY_ADDRESSES for each in parts)


def check_origins(origins: str) -> str:
    """Accept what browsers send as Origin, with commas between; `*`; or nothing."""
    for each in filter(None, (each.strip() for each in origins.split(","))):
        if each != "*" and not _ORIGIN.fullmatch(each):
            text = "allowed are origins such as https://chat.example.org with commas between, or *"
            raise not_allowed(text)
    return origins


def check_host_names(names: str) -> str:
    """Accept host names with commas between, or nothing."""
    for name in filter(None, (each.strip() for each in names.split(","))):
        try:
            check_host(name)
        except PydanticCustomError:
            raise not_allowed("allowed are host names without ports, with commas between") from None
    return names
