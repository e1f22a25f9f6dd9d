"""The paths of the data plane, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pdmuxd.daemon.gateway import dialects
from pdmuxd.daemon.gateway.about import LOAD_METRICS, LOADS, MODEL_INFO, SERVER_INFO
from pdmuxd.daemon.httpd.asgi import Scope, header
from pdmuxd.engine.core.errors import RequestError


class Kind(StrEnum):
    """What the gateway does with a path."""

    HEALTH = "health"
    """Answered here, without a key."""
    MODELS = "models"
    """Passed to the engine as it is."""
    MODEL = "model"
    """One model of that list."""
    ABOUT = "about"
    """Answered here, with a key: the node and its load."""
    TOKENIZER = "tokenizer"
    """The emulated engine's tokenizer as a file, passed on."""
    DOCUMENT = "document"
    """The data plane in OpenAPI, answered here with a key."""
    LOAD_METRICS = "load_metrics"
    """The node's load for scrapers, without a key. Served only with `data.load_metrics`."""
    CHAT = "chat"
    COMPLETION = "completion"
    GENERATE = "generate"
    RESPONSES = "responses"
    """OpenAI's Responses API."""
    MESSAGES = "messages"
    """Anthropic's Messages API."""
    SCORE = "score"
    """SGLang's own: how likely given tokens are behind each of several texts."""
    COUNT_TOKENS = "count_tokens"
    """How many tokens a request of that API would have."""
    TOKENIZE = "tokenize"
    """SGLang's own: the token ids of a prompt."""
    DETOKENIZE = "detokenize"
    """SGLang's own: the text of token ids."""


OPERATIONS = {
    Kind.CHAT: "chat",
    Kind.COMPLETION: "text_completion",
    Kind.GENERATE: "text_completion",
    Kind.RESPONSES: "chat",
    Kind.MESSAGES: "chat",
    Kind.SCORE: "text_completion",
}
"""Kinds of calls that ask the model, with OpenTelemetry's name of each (semantic conventions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path and the single method that it allows."""

    path: str
    method: str
    kind: Kind
    dialect: dialects.Dialect = dialects.OPENAI

    def dialect_for(self, scope: Scope) -> dialects.Dialect:
        """The dialect of a path's API; paths of models are in both, and Anthropic's clients say their
        version."""
        if self.kind in (Kind.MODELS, Kind.MODEL) and header(scope, ANTHROPIC_VERSION) is not None:
            return dialects.ANTHROPIC
        return self.dialect


ANTHROPIC_VERSION = b"anthropic-version"
COUNT_TOKENS = "/v1/messages/count_tokens"
TOKENIZING = frozenset({Kind.COUNT_TOKENS, Kind.TOKENIZE, Kind.DETOKENIZE})
"""Kinds of calls that the engine's tokenizer answers."""

TOKENIZER_FILE = "/tokenizer.json"

ROUTES = {
    route.path: route
    for route in (
        Route(path="/health", method="GET", kind=Kind.HEALTH),
        Route(path="/health_generate", method="GET", kind=Kind.HEALTH),
        Route(path="/v1/models", method="GET", kind=Kind.MODELS),
        Route(path=TOKENIZER_FILE, method="GET", kind=Kind.TOKENIZER),
        *(Route(path=path, method="GET", kind=Kind.ABOUT) for path in (*SERVER_INFO, *MODEL_INFO, LOADS)),
        Route(path=LOAD_METRICS, method="GET", kind=Kind.LOAD_METRICS),
        Route(path="/openapi.json", method="GET", kind=Kind.DOCUMENT),
        Route(path="/v1/chat/completions", method="POST", kind=Kind.CHAT),
        Route(path="/v1/completions", method="POST", kind=Kind.COMPLETION),
        Route(path="/generate", method="POST", kind=Kind.GENERATE),
        Route(path="/v1/responses", method="POST", kind=Kind.RESPONSES, dialect=dialects.RESPONSES),
        Route(path="/v1/messages", method="POST", kind=Kind.MESSAGES, dialect=dialects.ANTHROPIC),
        Route(path="/v1/score", method="POST", kind=Kind.SCORE),
        Route(path=COUNT_TOKENS, method="POST", kind=Kind.COUNT_TOKENS, dialect=dialects.ANTHROPIC),
        Route(path="/tokenize", method="POST", kind=Kind.TOKENIZE),
        Route(path="/detokenize", method="POST", kind=Kind.DETOKENIZE),
    )
}


ONE_MODEL = Route(path="/v1/models/{id}", method="GET", kind=Kind.MODEL)
_ONE_MODEL_PREFIX = "/v1/models/"
NOT_SUPPORTED = {
    # Whoever knows an id could read another tenant's answer.
    "/v1/responses/": "answers are not stored, so none can be read, continued or cancelled by its id",
    "/v1/messages/": "batches are not served; send each request by itself",
}
"""Paths that the engine has and that are not served here, with the reason."""
_EMBEDS = "the model here generates text and has no embeddings; engines of embedding models are not served"
_SCORES = "the model here generates text and ranks nothing; /v1/score has the probabilities of given tokens"
OTHER_MODELS = {
    "/v1/embeddings": _EMBEDS,
    "/encode": _EMBEDS,
    "/v1/rerank": _SCORES,
    "/rerank": _SCORES,
    "/v1/classify": _SCORES,
    "/classify": _SCORES,
}
"""Paths that need a model of another kind: 404, which clients' libraries do not send again."""


def dialect_of(path: str) -> dialects.Dialect:
    """The API that a path belongs to, also if nothing is served there."""
    return dialects.ANTHROPIC if path.startswith("/v1/messages") else dialects.OPENAI


def model_of(path: str) -> str:
    """The model that a path of ONE_MODEL names."""
    return path.removeprefix(_ONE_MODEL_PREFIX)


def find_route(method: str, path: str) -> Route:
    """The route of a call. Raises: RequestError 404 for an unknown path, 405 for another method."""
    route = ROUTES.get(path)
    if route is None and path.startswith(_ONE_MODEL_PREFIX):
        route = ONE_MODEL
    for below, why in NOT_SUPPORTED.items() if route is None else ():
        if path.startswith(below):
            raise RequestError(f"{path[:80]}: {why}", status=501, code="not_supported")
    if path in OTHER_MODELS:
        raise RequestError(f"{path}: {OTHER_MODELS[path]}", status=404, code="not_supported")
    if route is None:
        raise RequestError(
            f"there is no such path here; known are {', '.join(ROUTES)}", status=404, code="unknown_path"
        )
    if method != route.method and (method, route.method) != ("HEAD", "GET"):
        raise RequestError(
            f"{path} takes {route.method}, not {method}",
            status=405,
            code="method_not_allowed",
            allow=route.method,
        )
    return route
