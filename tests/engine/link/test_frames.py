"""Every message survives the wire; what is not a message is a LinkError."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.core.shapes import Experts
from pdmuxd.engine.link import frames, messages
from pdmuxd.engine.link.messages import LINK_PROTOCOL, EngineSettings, Hello

TO_DAEMON = typing.get_args(messages.ToDaemon)
TO_ENGINE = typing.get_args(messages.ToEngine)


def any_of(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any value of a struct, from its annotations."""
    hints = typing.get_type_hints(struct)
    return st.builds(struct, **{field: of_type(hints[field]) for field in struct.__struct_fields__})


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    if hint is int:
        return st.integers(min_value=-(2**63), max_value=2**64 - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return any_of(hint)
    if dataclasses.is_dataclass(hint):
        names = typing.get_type_hints(hint)
        fields = {each.name: positive(names[each.name]) for each in dataclasses.fields(hint)}
        if hint is Experts:
            fields["per_token"] = st.just(1)  # of at least so many
        return st.builds(hint, **fields)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(arguments)
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(of_type, arguments))
    if arguments:
        return st.one_of(*map(of_type, arguments))
    return st.from_type(hint)


def positive(hint: Any) -> st.SearchStrategy[Any]:
    """For values of the core, which refuse what no device or model can have."""
    if hint is int:
        return st.integers(min_value=1, max_value=2**63)
    return st.floats(min_value=1e-9, max_value=1e18) if hint is float else of_type(hint)


@given(st.one_of(*(any_of(struct) for struct in TO_DAEMON if struct is not Hello)))
def test_a_message_to_the_daemon_is_unchanged_when_sent(message: Any) -> None:
    assert frames.decode_to_daemon([frames.HEADER, frames.encode_to_daemon((message,))]) == [message]


@given(any_of(Hello))
def test_a_hello_is_unchanged_when_of_this_protocol(message: Hello) -> None:
    message = msgspec.structs.replace(message, protocol=LINK_PROTOCOL)
    assert frames.decode_to_daemon([frames.HEADER, frames.encode_to_daemon((message,))]) == [message]


@given(st.one_of(*map(any_of, TO_ENGINE)))
def test_a_message_to_the_engine_is_unchanged_when_sent(message: Any) -> None:
    assert frames.decode_to_engine([frames.HEADER, frames.encode_to_engine(message)]) == message


@given(st.lists(st.one_of(st.binary(), st.just(frames.HEADER)), max_size=3))
def test_any_bytes_give_a_message_or_a_link_error_when_decoded(received: list[bytes]) -> None:
    for decode in (frames.decode_to_daemon, frames.decode_to_engine):
        with contextlib.suppress(LinkError):
            decode(received)


@pytest.mark.parametrize("header", [b"pdmuxd-link/1", b"pdmuxd-link/\xff"])
def test_a_message_is_refused_with_both_versions_when_the_header_has_another_protocol(header: bytes) -> None:
    body = frames.encode_to_engine(EngineSettings(version=1, policy="muxwise", tenants=()))
    with pytest.raises(LinkError, match=f"link protocol .*, this end {LINK_PROTOCOL}"):
        frames.decode_to_engine([header, body])


def test_a_hello_is_refused_with_both_versions_when_it_names_another_protocol() -> None:
    hello = Hello(
        protocol=99,
        engine="emulator",
        engine_version="0",
        pid=1,
        model="m",
        device="d",
        total_sms=132,
        partitions=((132, 0),),
        profile="p",
        profile_provenance="derived",
        settings_version=0,
    )
    with pytest.raises(LinkError, match=f"link protocol 99, this end {LINK_PROTOCOL}"):
        frames.decode_to_daemon([frames.HEADER, frames.encode_to_daemon((hello,))])


def test_predictors_of_an_impossible_device_are_a_link_error_when_received() -> None:
    device = {"name": "d", "total_sms": 0, "min_sms": 8, "multiple_sms": 8}
    device |= {"flops": 1.0, "bytes_per_s": 1.0, "bandwidth_curvature": 1.0}
    predictors = {"profile_id": 1, "profile": "p", "provenance": "measured", "solo_run": [], "device": device}
    settings = {"type": "settings", "version": 1, "policy": "muxwise", "tenants": []}
    body = msgspec.msgpack.encode({**settings, "predictors": {**predictors, "guard_default_ratio": 1.2}})
    with pytest.raises(LinkError, match=r"device\.total_sms"):
        frames.decode_to_engine([frames.HEADER, body])


def test_a_message_of_the_other_direction_is_refused_when_received() -> None:
    settings = EngineSettings(version=1, policy="muxwise", tenants=())
    with pytest.raises(LinkError, match="cannot be decoded"):
        frames.decode_to_daemon([frames.HEADER, msgspec.msgpack.encode([settings])])
