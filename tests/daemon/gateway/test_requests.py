"""Checking and rewriting bodies: what is refused names its field, what passes keeps its meaning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.requests import rewrite
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.engine.core.errors import RequestError


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        (Kind.COMPLETION, b"{", None),
        (Kind.COMPLETION, b"", None),
        (Kind.COMPLETION, b"[1]", None),
        (Kind.COMPLETION, b"[" * 3000, None),
        (Kind.COMPLETION, b'{"a":' * 700, None),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": "\xff"}', None),
        (Kind.COMPLETION, b'{"prompt": "x"}', "model"),
        (Kind.COMPLETION, b'{"model": 7, "prompt": "x"}', "model"),
        (Kind.COMPLETION, b'{"model": "test-model"}', "prompt"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": {}}', "prompt"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": []}', "prompt"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": [1, -2]}', "prompt[1]"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": [[1], []]}', "prompt[1]"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": "x", "stream": "yes"}', "stream"),
        (Kind.COMPLETION, b'{"model": "test-model", "prompt": "x", "max_tokens": "9"}', "max_tokens"),
        (Kind.CHAT, b'{"model": "test-model"}', "messages"),
        (Kind.CHAT, b'{"model": "test-model", "messages": "x"}', "messages"),
        (Kind.CHAT, b'{"model": "test-model", "messages": []}', "messages"),
        (Kind.CHAT, b'{"model": "test-model", "messages": [{"role": 1}]}', "messages[0].role"),
        (Kind.GENERATE, b"{}", "text"),
        (Kind.GENERATE, b'{"input_ids": ["a"]}', "input_ids[0]"),
        (Kind.GENERATE, b'{"text": "x", "sampling_params": 3}', "sampling_params"),
        (Kind.GENERATE, b'{"text": "x", "sampling_params": [3]}', "sampling_params[0]"),
    ],
)
def test_400_naming_the_field_when_the_body_is_wrong(kind, body, param):
    with pytest.raises(RequestError) as caught:
        rewrite(kind, body, rid="r", tenant="t")
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("kind", "prompt"),
    [
        (Kind.COMPLETION, {"prompt": "x"}),
        (Kind.COMPLETION, {"prompt": ["x", "y"]}),
        (Kind.COMPLETION, {"prompt": [1, 2]}),
        (Kind.COMPLETION, {"prompt": [[1], [2, 3]]}),
        (Kind.GENERATE, {"text": "x"}),
        (Kind.GENERATE, {"text": ["x", "y"], "sampling_params": [{"n": 1}, {}]}),
        (Kind.GENERATE, {"input_ids": [[1], [2, 3]], "sampling_params": None}),
        (Kind.GENERATE, {"text": None, "input_ids": [1]}),
    ],
)
def test_every_form_of_prompt_passes(kind, prompt):
    sent = json.loads(
        rewrite(kind, json.dumps({"model": "m"} | prompt).encode(), rid="r", tenant="t").payload
    )
    sampling = sent.pop("sampling_params", None)
    assert {name: sent[name] for name in prompt if name in sent} == {
        name: value for name, value in prompt.items() if name != "sampling_params" and value is not None
    }
    if kind is Kind.GENERATE:
        for params in sampling if isinstance(sampling, list) else [sampling]:
            assert params["custom_params"] == {"pdmuxd_tenant": "t"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENGINES = ("rid", "priority", "custom_labels", "custom_params", "bootstrap_host", "kv_hints", "lora_id")
NAMES = st.sampled_from(ENGINES) | st.text(min_size=1, max_size=8).map("x_".__add__)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_only_known_fields_and_our_own_are_sent_whatever_the_client_sends(extra):
    body = {"model": "m", "prompt": "p", "temperature": 0.5, **extra}
    request = rewrite(Kind.COMPLETION, json.dumps(body).encode(), rid="r", tenant="t")
    assert json.loads(request.payload) == {
        "model": "m",
        "prompt": "p",
        "temperature": 0.5,
        "rid": "r",
        "extra_key": "tenant/t/",
        "custom_params": {"pdmuxd_tenant": "t"},
    }
    assert request.model == "m"


def test_an_engines_own_field_is_left_out_when_it_is_spelled_with_escapes_or_twice():
    body = b'{"model":"m","prompt":"p","\\u0072id":"evil","priority":1,"priority":2}'
    sent = json.loads(rewrite(Kind.COMPLETION, body, rid="r", tenant="t").payload)
    own = {"extra_key": "tenant/t/", "custom_params": {"pdmuxd_tenant": "t"}}
    assert sent == {"model": "m", "prompt": "p", "rid": "r", **own}
