"""No value that a client sends makes its cache key that of another tenant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, json

from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.gateway.cache_key import cache_key, namespace_of
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import DEFAULT_SLO

NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True)
TEXTS = st.text(max_size=30) | st.sampled_from(["tenant/a/", "/", "group/a/", "a/", "\0"])


def tenant(name: str, cache_group: str | None = None) -> TenantRecord:
    return TenantRecord(
        name=name, enabled=True, slo=DEFAULT_SLO, slo_version=1, max_in_flight=1, cache_group=cache_group
    )


def fields(**values: object) -> dict[str, Raw]:
    return {name: Raw(json.encode(value)) for name, value in values.items()}


@given(NAMES, NAMES, st.none() | NAMES, st.none() | NAMES, st.tuples(TEXTS, TEXTS, TEXTS, TEXTS))
def test_keys_differ_whatever_clients_send_when_tenants_share_no_group(
    one: str,
    other: str,
    one_group: str | None,
    other_group: str | None,
    texts: tuple[str, str, str, str],
) -> None:
    first, second = tenant(one, one_group), tenant(other, other_group)
    if namespace_of(first) == namespace_of(second):
        assert (one, None) == (other, one_group) if one_group is None else one_group == other_group
        return
    keys = [
        cache_key(fields(cache_salt=salt, extra_key=extra), namespace_of(each))
        for each, salt, extra in ((first, *texts[:2]), (second, *texts[2:]))
    ]
    assert keys[0] != keys[1]


def test_each_prompt_has_its_key_when_the_client_sends_a_list() -> None:
    given_fields = fields(extra_key=["a", "b"], cache_salt="s-", other=1)
    assert cache_key(given_fields, "tenant/t/") == ["tenant/t/s-a", "tenant/t/s-b"]
    assert given_fields.keys() == {"other"}, "what the client said is not sent beside it"
    assert cache_key(fields(extra_key=None), "tenant/t/") == "tenant/t/"
    assert cache_key(fields(cache_salt=["x", "y"], extra_key=["1", "2"]), "n/") == ["n/x1", "n/y2"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("extra_key", 5),
        ("extra_key", {"a": 1}),
        ("cache_salt", [1]),
        ("extra_key", "x" * 1025),
        ("cache_salt", ["x" * 1025]),
    ],
)
def test_the_field_is_named_when_it_is_no_text(field: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"the field `{field}`") as caught:
        cache_key(fields(**{field: value}), "tenant/t/")
    assert (caught.value.status, caught.value.param) == (400, field)


def test_it_is_said_when_two_lists_do_not_fit() -> None:
    with pytest.raises(RequestError, match="`extra_key` has 3 entries, and cache_salt has 2"):
        cache_key(fields(cache_salt=["a", "b"], extra_key=["1", "2", "3"]), "tenant/t/")
