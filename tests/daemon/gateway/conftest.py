"""A gateway on a real socket, in front of a scripted engine that does what the test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from declared import undeclared

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.controlplane.tenants.records import KeyRecord, TenantRecord
from pdmuxd.daemon.gateway import openapi
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.gateway.forwarding import EngineTimes
from pdmuxd.daemon.gateway.intake import BodyLimits
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.serving.servers import bind, serving, url_of
from pdmuxd.daemon.supervisor.address import EngineAddress
from pdmuxd.engine.core.slo import DEFAULT_SLO

ENGINE_KEY = "engine-key"
MODEL = "test-model"
KEY = "pdm_alice"
OTHER_KEY = "pdm_bob"
DISABLED_KEY = "pdm_carol"
LIMITS = BodyLimits(max_bytes=4096)

DIE = object()
END = object()


@dataclass
class ScriptedEngine:
    """Answers as the test says: put bytes, END or DIE into `script`."""

    script: asyncio.Queue = field(default_factory=asyncio.Queue)
    seen: asyncio.Queue = field(default_factory=asyncio.Queue)
    aborts: asyncio.Queue = field(default_factory=asyncio.Queue)
    closed: asyncio.Queue = field(default_factory=asyncio.Queue)
    status: int = 200
    refuse_aborts: bool = False
    headers: dict = field(default_factory=dict)
    """Of the last request."""
    raw: bytes = b""
    """Its body."""

    def say(self, *items):
        for item in items:
            self.script.put_nowait(item)

    def end(self):
        self.say(END)

    def die(self):
        self.say(DIE)

    async def one_model(self, request):
        return web.json_response({"id": request.match_info["model"], "object": "model"})

    async def tokenizer(self, request):
        return web.Response(
            status=self.status, body=b'{"detail":"Not Found"}', content_type="application/json"
        )

    async def models(self, request):
        return web.Response(body=b'{"object":"list","data":[]}', content_type="application/json")

    async def abort(self, request):
        self.aborts.put_nowait((await request.json())["rid"])
        return web.Response(status=500 if self.refuse_aborts else 200)

    async def generate(self, request):
        assert request.headers["Authorization"] == f"Bearer {ENGINE_KEY}"
        self.raw = await request.read()
        body = json.loads(self.raw)
        self.headers = dict(request.headers)
        self.seen.put_nowait(body)
        try:
            return await (self.stream(request) if body.get("stream") else self.whole(request))
        except asyncio.CancelledError:
            self.closed.put_nowait(body.get("rid"))
            raise

    async def stream(self, request):
        response = web.StreamResponse(status=self.status, headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while (item := await self.script.get()) is not END:
            if item is DIE:
                request.transport.abort()
                break
            await response.write(item)
        return response

    async def whole(self, request):
        item = await self.script.get()
        if item is DIE:
            request.transport.abort()
            return web.Response()
        return web.Response(status=self.status, body=item, content_type="application/json")


@dataclass
class Setup:
    """The gateway, what is behind it, and a client in front."""

    gateway: Gateway
    engine: ScriptedEngine
    metrics: Metrics
    url: str
    client: aiohttp.ClientSession
    address: EngineAddress

    def use_times(self, **times):
        self.gateway.use_limits(LIMITS, EngineTimes(**times))

    def post(self, path="/v1/completions", *, key=KEY, headers=None, **fields):
        body = {"model": MODEL, "prompt": "x"} | fields
        return self.client.post(
            self.url + path, json=body, headers={"Authorization": f"Bearer {key}"} | (headers or {})
        )


def tenant(name, *, enabled=True, max_in_flight=8):
    return TenantRecord(
        name=name, enabled=enabled, slo=DEFAULT_SLO, slo_version=1, max_in_flight=max_in_flight
    )


def directory(**limits):
    tenants = [tenant("alice", **limits), tenant("bob"), tenant("carol", enabled=False)]
    return DirectorySnapshot(
        version=1,
        tenants={each.name: each for each in tenants},
        keys={
            digest(secret): KeyRecord(
                key_id=f"key_{name}", tenant=name, scopes=frozenset({"serve"}), expires_at_s=None
            )
            for secret, name in ((KEY, "alice"), (OTHER_KEY, "bob"), (DISABLED_KEY, "carol"))
        },
    )


@contextlib.asynccontextmanager
async def engine_server(engine):
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    app.router.add_get("/tokenizer.json", engine.tokenizer)
    app.router.add_get("/v1/models/{model:.+}", engine.one_model)
    app.router.add_post("/abort_request", engine.abort)
    asked = ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/responses", "/v1/messages")
    for path in (*asked, "/v1/score", "/v1/messages/count_tokens", "/tokenize", "/detokenize"):
        app.router.add_post(path, engine.generate)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def declaring():
    """Fails a test that is answered with a status that the OpenAPI document does not declare."""
    document = json.loads(openapi.document())
    trace = aiohttp.TraceConfig()

    @trace.on_request_end.append
    async def check(session, context, params):
        problem = undeclared(document, params.method, params.url.path, params.response.status)
        assert problem is None, problem

    return trace


@pytest.fixture
async def setup():
    async with contextlib.AsyncExitStack() as stack:
        engine = ScriptedEngine()
        base_url = await stack.enter_async_context(engine_server(engine))
        metrics = Metrics()
        metrics.use_tenants(("alice", "bob", "carol"))
        gateway = Gateway(directory=directory(), limits=LIMITS, admission=Admission(10), metrics=metrics)
        stack.push_async_callback(gateway.close)
        listener = bind("127.0.0.1", 0, section="data")
        await stack.enter_async_context(serving(gateway, listener))
        client = await stack.enter_async_context(aiohttp.ClientSession(trace_configs=[declaring()]))
        address = EngineAddress(base_url=base_url, api_key=ENGINE_KEY, models=frozenset({MODEL}))
        gateway.use_engine(address)
        yield Setup(gateway, engine, metrics, url_of(listener), client, address)


@pytest.fixture
async def seen_leaving(setup):
    """Set when the gateway has seen a client leave."""
    left = asyncio.Event()

    async def app(scope, receive, send):
        async def heard():
            message = await receive()
            if message["type"] == "http.disconnect":
                left.set()
            return message

        await setup.gateway(scope, heard, send)

    listener = bind("127.0.0.1", 0, section="data")
    async with serving(app, listener):
        setup.url = url_of(listener)
        yield left


@pytest.fixture
def make_directory():
    return directory
