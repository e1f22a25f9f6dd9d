"""What of a trace's context goes on to the engine, and what a tracer is told of."""

from types import MappingProxyType

import pytest

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Told:
    """A tracer that notes what it is told."""

    headers = MappingProxyType({"traceparent": PARENT.replace("b7ad", "aaaa")})

    def __init__(self):
        self.said = []

    def begin(self, scope, **facts):
        self.said.append(("begin", facts["tenant"], facts["path"], facts["operation"], facts["client_id"]))
        return self

    def asked(self, **facts):
        self.said.append(("asked", facts))

    def sent(self):
        self.said.append("sent")

    def first_byte(self):
        self.said.append("first_byte")

    def answered(self, **facts):
        self.said.append(("answered", facts))


@pytest.fixture
def told(setup):
    setup.gateway._tracer = Told()
    return setup.gateway._tracer


async def test_the_callers_context_goes_on_as_it_came_when_nothing_is_traced(setup):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(headers={"traceparent": PARENT, "tracestate": "a=1"}):
        assert setup.engine.headers["traceparent"] == PARENT
        assert setup.engine.headers["tracestate"] == "a=1"


@pytest.mark.parametrize(
    "parent", ["x", PARENT + "-", f"00-{'0' * 32}-b7ad6b7169203331-01", PARENT.upper(), "00" * 2000]
)
async def test_a_context_stays_behind_when_it_is_malformed(setup, parent):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(headers={"traceparent": parent, "tracestate": "a=1"}):
        assert not {"traceparent", "tracestate"} & {name.lower() for name in setup.engine.headers}


async def test_the_engine_gets_the_tracers_context_when_one_traces(setup, told):
    setup.engine.script.put_nowait(b"{}")
    async with setup.post(headers={"traceparent": PARENT, "x-request-id": "mine"}) as response:
        await response.read()
    assert setup.engine.headers["traceparent"] == Told.headers["traceparent"]
    assert told.said == [
        ("begin", "alice", "/v1/completions", "text_completion", "mine"),
        ("asked", {"model": "test-model", "is_streamed": False, "outputs": 1}),
        "sent",
        "first_byte",
        ("answered", {"status": 200, "end": "complete", "error": None}),
    ]


async def test_the_cause_is_told_when_a_request_is_refused(setup, told):
    async with setup.post(prompt=5) as response:
        assert response.status == 400
    assert told.said[-1] == ("answered", {"status": 400, "end": "complete", "error": "invalid_value"})


async def test_nothing_is_told_of_callers_without_a_key(setup, told):
    async with setup.post(key="pdm_wrong") as response:
        assert response.status == 401
    assert told.said == []
