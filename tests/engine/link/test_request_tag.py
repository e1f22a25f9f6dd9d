"""The tag between the gateway and the engine, and a request's own targets in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import DEFAULT_SLO, RequestTargets
from pdmuxd.engine.link.request_tag import RequestTag, decode_tag, params_of, targets_in

seconds = st.one_of(st.none(), st.floats(0.001, 10.0))


@given(st.text(), st.text(), seconds, seconds, seconds, st.floats(0.001, 1.0))
def test_a_tag_comes_back_whatever_a_client_wrote_into_its_key(tenant, key, ttft_s, tbt_s, e2e_s, share):
    share = 1.0 if ttft_s is tbt_s is e2e_s is None else share
    targets = RequestTargets(ttft_s=ttft_s, tbt_s=tbt_s, e2e_s=e2e_s, e2e_share=share)
    tag = RequestTag(rid="r", extra_key=key, custom_params={"pdmuxd_tenant": tenant, **params_of(targets)})
    header = tag.encode()
    assert header.isascii()
    assert header.isprintable()
    found = decode_tag(header)
    assert found == tag
    assert (targets_in(found.custom_params) or RequestTargets()) == targets


@pytest.mark.parametrize("header", ["", "x", "e30=", "bnVsbA==", "\xe4", "====", "a" * 5000])
def test_400_when_a_tag_is_malformed(header):
    with pytest.raises(RequestError) as caught:
        decode_tag(header)
    assert caught.value.status == 400


@pytest.mark.parametrize("value", [0, -1, 1e9, float("nan"), float("inf"), True, "0.1", None, [0.1]])
def test_a_target_that_no_gateway_sends_counts_as_none(value):
    names = ("pdmuxd_ttft_target_s", "pdmuxd_tbt_target_s", "pdmuxd_e2e_target_s")
    assert targets_in(dict.fromkeys(names, value)) is None


def test_a_request_has_its_tenants_targets_but_for_its_own():
    own = RequestTargets(ttft_s=0.25).applied_to(DEFAULT_SLO)
    assert [own.ttft_target_s(tokens) for tokens in (1, 8000)] == [0.25, 0.25]
    assert own.tbt_s == DEFAULT_SLO.tbt_s
    strict = RequestTargets(tbt_s=0.01).applied_to(DEFAULT_SLO)
    assert (strict.tbt_s, strict.ttft_target_s(1000)) == (0.01, DEFAULT_SLO.ttft_target_s(1000))
    assert (strict.e2e_s, RequestTargets(e2e_s=9.0).applied_to(DEFAULT_SLO).e2e_s) == (None, 9.0)
