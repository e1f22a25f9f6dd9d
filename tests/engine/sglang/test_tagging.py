"""What a request has of its tenant before SGLang takes it up."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.link.request_tag import TAG_HEADER, TENANT_PARAM, RequestTag
from pdmuxd.engine.sglang.internals.tagging import tag

CHAT = {"custom_params": {TENANT_PARAM: "chat"}}


def tagged(params, *, adapters=("chat",), header=None):
    request = SimpleNamespace(rid=None, extra_key=None, lora_path=None, sampling_params=params)
    http = SimpleNamespace(headers={} if header is None else {TAG_HEADER: header})
    tag(SimpleNamespace(lora_ref_cache=dict.fromkeys(adapters)), request, http)
    return request


@pytest.mark.parametrize(
    ("params", "adapter"),
    [
        (CHAT, "chat"),
        ([CHAT, CHAT], "chat"),
        ({"custom_params": {TENANT_PARAM: "docs"}}, None),
        ({"custom_params": None}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_request_gets_the_adapter_of_its_tenants_name_if_there_is_one(params, adapter):
    assert tagged(params).lora_path == adapter


def test_no_request_gets_an_adapter_when_there_is_none():
    assert tagged(CHAT, adapters=()).lora_path is None


def test_a_request_gets_what_its_header_says_and_the_adapter_of_the_tenant_there():
    header = RequestTag(rid="r", extra_key="k", custom_params={TENANT_PARAM: "chat"}).encode()
    request = tagged({"temperature": 0}, header=header)
    assert (request.rid, request.extra_key, request.lora_path) == ("r", "k", "chat")
    assert request.sampling_params == {"temperature": 0, **CHAT}


def test_a_malformed_header_is_refused():
    with pytest.raises(ValueError, match="malformed"):
        tagged({}, header="?")
