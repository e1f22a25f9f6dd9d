"""Where the emulated engine may answer otherwise than SGLang, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Places in the shapes of some cases; both are patterns, of which each must be met by some difference."""

    reason: str
    cases: tuple[str, ...]
    places: tuple[str, ...]

    def covers(self, case: str, place: str) -> bool:
        """Whether it speaks of this."""
        return _meets(self.cases, case) and _meets(self.places, place)


LISTED: tuple[Difference, ...] = (
    Difference(
        reason="SGLang tells which version of the weights answered; the emulated model has one",
        cases=("chat: plain", "chat*", "completion*"),
        places=("body.metadata",),
    ),
    Difference(
        reason="the emulated engine tells what its cache held, SGLang only with --enable-cache-report",
        cases=("chat*", "completion*", "messages*"),
        places=(
            "*usage.prompt_tokens_details",
            "*usage.cache_creation_input_tokens",
            "*usage.cache_read_input_tokens",
            "forms.message_delta.usage.input_tokens",
        ),
    ),
    Difference(
        reason="the emulated engine's /generate has no figures of SGLang's own and no ids of its tokens",
        cases=("generate: plain", "generate*"),
        places=(
            "*.output_ids",
            "*.meta_info.cached_tokens_details",
            "*.meta_info.num_retractions",
            "*.meta_info.reasoning_tokens",
            "*.meta_info.response_sent_to_client_ts",
            "*.meta_info.weight_version",
            "*.meta_info.weight_versions",
        ),
    ),
    Difference(
        reason="not emulated, refused by name: other grammars than JSON schemas",
        cases=("chat: regex", "chat: ebnf", "completion: regex", "generate: regex"),
        places=("status",),
    ),
    Difference(
        reason="not emulated, refused by name: several answers and log probabilities of /generate",
        cases=(
            "generate: several texts",
            "generate: n",
            "generate: several params",
            "generate: max_new_tokens of 0",
            "generate: logprobs*",
        ),
        places=("status",),
    ),
    Difference(
        reason="not emulated: its ids are hashes of pieces, so that no text can be made of them",
        cases=("detokenize: one list", "detokenize: several lists", "detokenize: special tokens kept"),
        places=("status",),
    ),
    Difference(
        reason="not emulated and left out: ids of tokens in chats, log probabilities of the Responses API",
        cases=("chat: return_token_ids", "responses: top_logprobs"),
        places=("body.choices[[]].*_token_ids", "body.output[[]].content[[]].logprobs"),
    ),
    Difference(
        reason="the emulated model takes pictures; that of the tests, as all of text, refuses them",
        cases=("chat: a picture", "responses: a picture", "messages: a picture"),
        places=("status",),
    ),
    Difference(
        reason="a model of random weights calls no tool that it need not call",
        cases=("* tools, auto", "* tools, auto, streamed"),
        places=("*",),
    ),
    Difference(
        reason="what a model of random weights puts into a call is no object: SGLang's parsers stop at it",
        cases=(
            "chat: tools, required*",
            "chat: tools, one named*",
            "responses: tools, required*",
            "responses: tools, one named",
            "messages: tools, any*",
            "messages: tools, one named",
        ),
        places=("*",),
    ),
    Difference(
        reason="SGLang's last event with text has the reason too, that of the emulated engine comes apart",
        cases=("completion: logprobs streamed",),
        places=("forms.finish.choices[[]].logprobs",),
    ),
    Difference(
        reason="SGLang keeps back a character of which it has not all bytes",
        cases=("chat: top_logprobs streamed",),
        places=("forms.content.choices[[]].delta.content",),
    ),
    Difference(
        reason="SGLang fills in `strict`, and leaves `text` out of a stream's first events",
        cases=("responses*",),
        places=("body.tools[[]].strict", "forms.response.*.response.text"),
    ),
    Difference(
        reason="SGLang's words tell the format, not the place in it",
        cases=("responses refused: text format of a nonsense schema",),
        places=("error.param",),
    ),
)


def judge(found: Iterable[tuple[str, str, Any, Any]]) -> tuple[list[tuple[str, str, Any, Any]], list[str]]:
    """Differences that are not listed, and what is listed and does not exist."""
    left = list(found)
    unlisted = [each for each in left if not any(listed.covers(*each[:2]) for listed in LISTED)]
    gone = []
    for listed in LISTED:
        met = [(case, place) for case, place, _, _ in left if listed.covers(case, place)]
        gone += [each for each in listed.cases if not any(fnmatchcase(case, each) for case, _ in met)]
        gone += [each for each in listed.places if not any(fnmatchcase(place, each) for _, place in met)]
    return unlisted, gone


def _meets(patterns: tuple[str, ...], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
