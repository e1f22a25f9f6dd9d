"""Targets of one request, by a router's headers: whose count, what is refused, and what the engine gets."""

import pytest

from pdmuxd.daemon.gateway import app
from pdmuxd.daemon.gateway.observer import NobodyWatches
from pdmuxd.daemon.gateway.slo_headers import targets_of
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.link.request_tag import TAG_HEADER, decode_tag

HEADERS = {"x-llm-d-slo-ttft-ms": "250", "x-llm-d-slo-tpot-ms": "12.5", "x-pdmuxd-e2e-ms": "9000"}
OWN = {"pdmuxd_ttft_target_s": 0.25, "pdmuxd_tbt_target_s": 0.0125, "pdmuxd_e2e_target_s": 9.0}


class Told(NobodyWatches):
    def __init__(self):
        self.targets = []

    def on_targets(self, request_id, targets):
        self.targets.append(targets)


@pytest.fixture
def trusting(setup):
    setup.gateway._trusted = TrustedPeers("127.0.0.0/8")
    setup.gateway._observer = Told()
    return setup


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
async def test_the_engine_gets_the_targets_of_a_trusted_peer(trusting, path):
    trusting.engine.say(b"{}")
    more = {"text": "x", "messages": [{"role": "user", "content": "x"}]}
    async with trusting.post(path, headers=HEADERS, **more) as answer:
        assert answer.status == 200
    seen = await trusting.engine.seen.get()
    holder = seen["sampling_params"] if path == "/generate" else seen
    assert holder["custom_params"] == {"pdmuxd_tenant": "alice", **OWN}
    assert trusting.gateway._observer.targets == [RequestTargets(ttft_s=0.25, tbt_s=0.0125, e2e_s=9.0)]


async def test_the_tag_has_them_where_the_body_has_no_field(trusting):
    trusting.engine.say(b"{}")
    async with trusting.post("/v1/responses", headers=HEADERS, input="x", prompt=None) as answer:
        assert answer.status == 200
    assert decode_tag(trusting.engine.headers[TAG_HEADER]).custom_params == {"pdmuxd_tenant": "alice", **OWN}


async def test_one_header_leaves_the_other_target_to_the_tenant(trusting):
    trusting.engine.say(b"{}")
    async with trusting.post(headers={"x-llm-d-slo-tpot-ms": "12.5"}):
        seen = await trusting.engine.seen.get()
    assert seen["custom_params"] == {"pdmuxd_tenant": "alice", "pdmuxd_tbt_target_s": 0.0125}


@pytest.mark.parametrize(
    ("more", "ttft_s"), [({}, 0.1), ({"x-llm-d-slo-ttft-ms": "250"}, 0.25), ({"x-slo-ttft-ms": "x"}, None)]
)
async def test_the_former_spelling_counts_where_the_present_one_is_missing(trusting, more, ttft_s):
    trusting.engine.say(b"{}")
    async with trusting.post(headers={"x-slo-ttft-ms": "100", "x-slo-tpot-ms": "5", **more}) as answer:
        assert answer.status == (200 if ttft_s else 400)
        assert ttft_s or (await answer.json())["error"]["param"] == "x-slo-ttft-ms"
    if ttft_s:
        assert trusting.gateway._observer.targets == [RequestTargets(ttft_s=ttft_s, tbt_s=0.005)]


@pytest.mark.parametrize("given", [HEADERS, {"x-llm-d-slo-ttft-ms": "nonsense"}])
async def test_headers_of_anybody_else_are_ignored_and_stay_behind(setup, given):
    setup.gateway._trusted = TrustedPeers("10.0.0.0/8")
    setup.engine.say(b"{}")
    async with setup.post(headers={**given, "x-forwarded-for": "10.0.0.1"}) as answer:
        assert answer.status == 200
    assert (await setup.engine.seen.get())["custom_params"] == {"pdmuxd_tenant": "alice"}
    assert not any(name.lower().startswith("x-llm-d") for name in setup.engine.headers)


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize(
    "value", ["", "abc", "nan", "inf", "0", "-5", "1e9", "1_0", "0x10", "5 s", "86400001", "\u0663"]
)
def test_a_value_that_is_no_target_is_refused_by_the_headers_name(name, value):
    with pytest.raises(RequestError, match=rf"{name}.* ms") as caught:
        targets_of({"headers": [(name.encode(), value.encode())]})
    assert (caught.value.status, caught.value.param) == (400, name)


async def test_400_naming_the_header_when_it_is_wrong(trusting):
    name = "x-llm-d-slo-ttft-ms"
    async with trusting.post(headers={name: "soon"}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == name
    assert trusting.engine.seen.empty()
    assert trusting.gateway.admission.in_flight == 0


async def test_gaps_are_judged_by_the_requests_own_target(trusting, monkeypatch):
    judged_by = []

    def deliver(*, tbt_target_s, **more):
        judged_by.append(tbt_target_s)

    monkeypatch.setattr(app, "Delivery", deliver)
    trusting.engine.end()
    async with trusting.post(headers=HEADERS, stream=True) as answer:
        await answer.read()
    assert judged_by == [0.0125]
