"""POST /v1/score: how likely given tokens are behind each of several texts. Made up, and the same each time.

Source of the forms: SGLang 0.5.23, `entrypoints/openai/protocol.py` and `tokenizer_manager_score_mixin.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Meta

from pdmuxd.engine.emulator.server.bodies import Call, Sampling
from pdmuxd.engine.emulator.server.delivery import Output
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.tags import Tag
from pdmuxd.engine.emulator.server.tokenizer import token_ids

Ids = list[int]


class ScoreBody(msgspec.Struct, kw_only=True):
    """The body. Tokens are scored for all items, or each item's own."""

    items: str | list[str | Ids]
    label_token_ids: list[int | Ids]
    query: str | Ids | None = None
    model: str | None = None
    apply_softmax: bool = False
    temperature: Annotated[float, Meta(gt=0)] = 1.0
    return_token_logprobs: bool = False
    item_first: bool = False


def score_call(body: ScoreBody, *, tag: Tag) -> Call:
    """Read a request: each item is a prompt, of which one token is computed. Raises: RequestError 400."""
    items = [body.items] if isinstance(body.items, str) else body.items
    _check_labels(body, len(items))
    query = body.query or ("" if isinstance(items[0], str) else [])
    return Call(
        rid=tag.rid,
        tenant=tag.tenant,
        targets=tag.targets,
        prompts=tuple(_prompt(query, item, item_first=body.item_first) for item in items),
        prompt_param="items",
        sampling=Sampling(max_tokens=1, min_tokens=0, ignore_eos=True, stops=(), keep_stop=False, seed=0),
        salt=tag.salt,
        stream=False,
    )


def _prompt(query: str | Ids, item: str | Ids, *, item_first: bool) -> str | Ids:
    parts = (item, query) if item_first else (query, item)
    if isinstance(query, str) and isinstance(item, str):
        return "".join(parts)  # type: ignore[arg-type]
    return [each for part in parts for each in (token_ids(part).tolist() if isinstance(part, str) else part)]


def _check_labels(body: ScoreBody, items: int) -> None:
    """Raises: RequestError 400 in SGLang's words."""
    if body.temperature != 1.0 and not body.apply_softmax:
        raise refuse("temperature requires apply_softmax=True", param="temperature")
    of_each = labels_of(body, items)
    if len(of_each) != items:
        raise refuse("label_token_ids must have one list per item", param="label_token_ids")
    if any(len(set(labels)) != len(labels) for labels in of_each):
        raise refuse("label_token_ids must not contain duplicate tokens", param="label_token_ids")


def labels_of(body: ScoreBody, items: int) -> list[Ids]:
    """The tokens that are scored behind each item."""
    lists = [each for each in body.label_token_ids if isinstance(each, list)]
    return lists or [[each for each in body.label_token_ids if isinstance(each, int)]] * items


class ScoreAnswer:
    """The scores of all items in one body; nothing is streamed."""

    def __init__(self, body: ScoreBody, model: str) -> None:
        self._body, self._model = body, model

    def whole(self, outputs: Sequence[Output]) -> bytes:
        body, tokens = self._body, sum(output.plan.prompt_tokens for output in outputs)
        logprobs = [
            [_logprob(output.plan.block_keys[-1], label) for label in labels]
            for output, labels in zip(outputs, labels_of(body, len(outputs)), strict=True)
        ]
        return msgspec.json.encode(
            {
                "scores": [self._scores(each) for each in logprobs],
                "pooled_hidden_states": None,
                "token_logprobs": logprobs if body.return_token_logprobs else None,
                "model": self._model,
                "usage": {
                    "prompt_tokens": tokens,
                    "total_tokens": tokens,
                    "completion_tokens": 0,
                    "prompt_tokens_details": None,
                    "reasoning_tokens": 0,
                },
                "object": "scoring",
            }
        )

    def _scores(self, logprobs: Sequence[float]) -> list[float]:
        if not self._body.apply_softmax:
            return [math.exp(each) for each in logprobs]
        most = max(logprobs)
        weights = [math.exp((each - most) / self._body.temperature) for each in logprobs]
        return [weight / sum(weights) for weight in weights]


def _logprob(seed: int, label: int) -> float:
    return -1.0 - crc32(b"%d %d" % (seed, label)) % 9000 / 1000
