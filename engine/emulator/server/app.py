"""The HTTP application: SGLang's endpoints in front of a wall-clock driver."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pdmuxd.engine.core.errors import EngineInvariantError, RequestError
from pdmuxd.engine.emulator.server import info
from pdmuxd.engine.emulator.server.answers import Answer, GenerateAnswer
from pdmuxd.engine.emulator.server.auth import BearerKey
from pdmuxd.engine.emulator.server.bodies import (
    AbortBody,
    Call,
    ChatBody,
    CompletionBody,
    GenerateBody,
    TokenizeBody,
    decode,
)
from pdmuxd.engine.emulator.server.calls import chat_call, completion_call, generate_call, tokens_of
from pdmuxd.engine.emulator.server.delivery import Inbox, Output
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.emulator.server.messages_api import (
    CountBody,
    MessagesAnswer,
    MessagesBody,
    messages_call,
    prompt_of,
)
from pdmuxd.engine.emulator.server.openai_answers import ChatAnswer, CompletionAnswer
from pdmuxd.engine.emulator.server.planning import Plan, plan
from pdmuxd.engine.emulator.server.refusals import MESSAGES, error_response, handle_request_error, refuse
from pdmuxd.engine.emulator.server.responses import EventStream, WholeAnswer
from pdmuxd.engine.emulator.server.responses_answer import ResponsesAnswer
from pdmuxd.engine.emulator.server.responses_api import ResponsesBody, responses_call
from pdmuxd.engine.emulator.server.scores import ScoreAnswer, ScoreBody, score_call
from pdmuxd.engine.emulator.server.tags import tag_of
from pdmuxd.engine.emulator.server.tokenizer import token_ids
from pdmuxd.engine.emulator.server.tokenizer_file import tokenizer_file

MAX_BODY_BYTES = 64 * 2**20
"""The gateway's own limit is lower; this one only keeps a stray client from filling the memory."""
_LARGE_BODY_BYTES = 64 * 1024
_ANY_MODEL = "default"
"""The name that SGLang's own clients send when they know none."""

_BodyT = TypeVar("_BodyT")


def build_app(driver: WallClockDriver, *, model: str, version: str, key: str | None) -> Starlette:
    """Build the application; `key` is what clients must send as a bearer token, None for no check."""
    endpoints = _Endpoints(driver, model, version)
    return Starlette(
        routes=endpoints.routes(),
        middleware=[Middleware(BearerKey, key=key)],
        exception_handlers={
            RequestError: handle_request_error,
            HTTPException: _handle_http_error,
            EngineInvariantError: _handle_defect,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A request that was read, and what will be said to each of its prompts."""

    call: Call
    plans: Sequence[Plan]


class _Endpoints:
    def __init__(self, driver: WallClockDriver, model: str, version: str) -> None:
        self._driver = driver
        self._model = model
        self._version = version
        self._created = int(time.time())
        self._one_large_body = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/generate", self.generate, methods=["POST", "PUT"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
            Route("/v1/score", self.score, methods=["POST"]),
            Route(MESSAGES, self.messages, methods=["POST"]),
            Route(f"{MESSAGES}/count_tokens", self.count_tokens, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/tokenizer.json", self.tokenizer_file),
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.one_model),
            Route("/health", self.health),
            Route("/server_info", self.server_info),
            Route("/get_server_info", self.server_info),
            Route("/model_info", self.model_info),
            Route("/get_model_info", self.model_info),
            Route("/abort_request", self.abort_request, methods=["POST"]),
            Route("/flush_cache", self.flush_cache, methods=["GET", "POST"]),
        ]

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        work = await self._prepare(request, ChatBody, chat_call)
        response_id = _id(work.call.rid)
        return self._respond(work, response_id, ChatAnswer(work.call, response_id, self._model))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        work = await self._prepare(request, CompletionBody, completion_call)
        response_id = _id(work.call.rid)
        return self._respond(work, response_id, CompletionAnswer(work.call, response_id, self._model))

    async def generate(self, request: Request) -> Response:
        work = await self._prepare(request, GenerateBody, generate_call)
        response_id = _id(work.call.rid)
        return self._respond(work, response_id, GenerateAnswer(response_id))

    async def responses(self, request: Request) -> Response:
        """POST /v1/responses."""
        work = await self._prepare(request, ResponsesBody, partial(responses_call, tag=tag_of(request)))
        response_id = _id(work.call.rid)
        return self._respond(work, response_id, ResponsesAnswer(work.call, response_id, self._model))

    async def messages(self, request: Request) -> Response:
        """POST /v1/messages."""
        work = await self._prepare(request, MessagesBody, partial(messages_call, tag=tag_of(request)))
        response_id = _id(work.call.rid)
        return self._respond(work, response_id, MessagesAnswer(work.call, response_id, self._model))

    async def score(self, request: Request) -> Response:
        """POST /v1/score."""
        bodies: list[ScoreBody] = []

        def call_of(body: ScoreBody) -> Call:
            bodies.append(body)
            return score_call(body, tag=tag_of(request))

        work = await self._prepare(request, ScoreBody, call_of)
        inbox, outputs = self._submit(work, _id(work.call.rid))
        return WholeAnswer(self._driver, inbox, outputs, ScoreAnswer(bodies[0], self._model))

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens."""
        body = decode(await _read(request), CountBody)
        self._check_model(body.model)
        ids = await asyncio.to_thread(token_ids, prompt_of(body))
        return _json({"input_tokens": len(ids)})

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: token ids of texts, or of a conversation."""
        body = decode(await _read(request), TokenizeBody)
        self._check_model(body.model)
        model = self._driver.engine.profile.model
        found = await asyncio.to_thread(tokens_of, body, model.vocab)
        is_batch = isinstance(body.prompt, list)
        return _json(
            {
                "tokens": found if is_batch else found[0],
                "count": [len(ids) for ids in found] if is_batch else len(found[0]),
                "max_model_len": model.max_context_tokens,
            }
        )

    async def tokenizer_file(self, _: Request) -> Response:
        vocab = self._driver.engine.profile.model.vocab
        return Response(await asyncio.to_thread(tokenizer_file, vocab), media_type="application/json")

    async def models(self, _: Request) -> Response:
        """GET /v1/models."""
        return _json(info.model_list(self._driver, self._model, self._created))

    async def one_model(self, request: Request) -> Response:
        """GET /v1/models/ID."""
        self._check_model(request.path_params["model"])
        return _json(info.model_list(self._driver, self._model, self._created)["data"][0])

    async def health(self, _: Request) -> Response:
        """GET /health: 200 only while the engine's loop turns and takes requests."""
        return Response(status_code=200 if self._driver.alive and not self._driver.draining else 503)

    async def server_info(self, _: Request) -> Response:
        return _json(info.server_info(self._driver, self._model, self._version))

    async def model_info(self, _: Request) -> Response:
        return _json(info.model_info(self._model))

    async def abort_request(self, request: Request) -> Response:
        """POST /abort_request: by id, or all. As in SGLang, an unknown id is no error."""
        body = decode(await _read(request), AbortBody)
        if body.abort_all:
            self._driver.abort_all()
        elif body.rid:
            self._driver.abort_id(body.rid)
        else:
            raise refuse("give `rid`, or `abort_all`: true", param="rid")
        return Response(status_code=200)

    async def flush_cache(self, _: Request) -> Response:
        """POST /flush_cache: only while nothing is in flight."""
        if self._driver.engine.flush_cache():
            return PlainTextResponse("Cache flushed.\n")
        return PlainTextResponse("Not flushed: requests are in flight.\n", status_code=400)

    def _check_model(self, model: str | None) -> None:
        if model not in (None, self._model, _ANY_MODEL):
            raise refuse(
                f"the model {model!r} is not served here; {self._model!r} is",
                param="model",
                code="model_not_found",
                status=404,
            )

    async def _prepare(
        self, request: Request, body: type[_BodyT], to_call: Callable[[_BodyT], Call]
    ) -> _Work:
        """Read and plan a request; a large one in a thread, or every stream would wait for it."""
        data = await _read(request)
        if len(data) <= _LARGE_BODY_BYTES:
            return self._plan(data, body, to_call)
        async with self._one_large_body:
            return await asyncio.to_thread(self._plan, data, body, to_call)

    def _plan(self, data: bytes, body: type[_BodyT], to_call: Callable[[_BodyT], Call]) -> _Work:
        read = decode(data, body)
        self._check_model(getattr(read, "model", None))
        call = to_call(read)
        engine = self._driver.engine
        plans = [
            plan(
                call,
                prompt,
                block_tokens=engine.block_tokens,
                max_context_tokens=engine.profile.model.max_context_tokens,
                position=position,
            )
            for position, prompt in enumerate(call.prompts)
        ]
        return _Work(call=call, plans=plans)

    def _respond(self, work: _Work, response_id: str, answer: Answer) -> Response:
        inbox, outputs = self._submit(work, response_id)
        response = EventStream if work.call.stream else WholeAnswer
        return response(self._driver, inbox, outputs, answer)

    def _submit(self, work: _Work, response_id: str) -> tuple[Inbox, Sequence[Output]]:
        call, plans = work.call, work.plans
        several = len(plans) > 1
        ids = [f"{response_id}_{i}" if several else response_id for i in range(len(plans))]
        inbox = Inbox(every_token=call.stream)
        direct = call.stream and call.direct_tokens
        outputs = self._driver.submit(
            ids,
            plans,
            tenant=call.tenant,
            inbox=inbox,
            targets=call.targets,
            answer_id=response_id if direct else None,
        )
        return inbox, outputs


async def _read(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise refuse(f"the body is over {MAX_BODY_BYTES} bytes", code="body_too_large", status=413)
    return bytes(data)


def _id(rid: str | None) -> str:
    return rid or uuid.uuid4().hex


def _json(value: Mapping[str, Any]) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape as every other error."""
    assert isinstance(error, HTTPException)  # noqa: S101 - a narrowing: registered for this type alone
    message = f"{request.method} {request.url.path}: {error.detail}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return error_response(refuse(message, status=error.status_code, code=code))


async def _handle_defect(_: Request, error: Exception) -> Response:
    """The emulator is defective: the driver stops, and the process with it."""
    return error_response(refuse(f"the engine failed: {error}", status=500, code="engine_failed"))
