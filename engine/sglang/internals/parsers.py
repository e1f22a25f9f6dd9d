"""Where SGLang's parsers of calls and of reasoning may change an answer's text: they say it themselves.

A parser is watched if text without any of its letters ("<" of `<tool_call>`) passes it at once and as it is.
A token that has one is read by SGLang's front end, until a parser of the same kind, asked here, lets the text
pass as well.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

_CALLS = "sglang.srt.function_call.function_call_parser:FunctionCallParser"
_REASONING = "sglang.srt.parser.reasoning_parser:ReasoningParser"
_TOOL = "sglang.srt.entrypoints.openai.protocol:Tool"
_ORDINARY = ("Hello", " world", ".\n", "\n\n", " ", "1 + 2", "```python\n", "é", "数字", *string.punctuation)
"""What must pass, each by itself, where it has none of a parser's letters."""
_BY_TEMPLATE = frozenset({"granite_thinking_parser"})
"""Parsers that work otherwise where the request's chat template is given some argument."""
_MOST_ALONE = 2
"""Signs of ASCII that no mark of a parser begins with, and that it holds back: "{" of Llama 3's calls."""
_BROKEN = (ImportError, AttributeError, TypeError, ValueError, KeyError, AssertionError)

Passes = Callable[[str], bool]
"""Whether a text passes a parser at once and as it is."""


def no_parser(text: str) -> bool:  # noqa: ARG001
    """Everything passes where there is none."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is looked for in the tokens of one kind of answer."""

    tokens: frozenset[int]
    """Those whose text has a letter with which a parser may begin to hold text back."""
    passes: Passes
    """Behind the end of reasoning."""
    alone: frozenset[int] = frozenset()
    """Those of them that the parser must be given at the begin of a text, as it would get them by itself."""
    think: tuple[str, str] | None = None
    """How reasoning begins and ends; None where nothing parses it."""
    reasons: Passes = no_parser
    """Before it."""

    def begins(self, text: str) -> bool:
        """Whether the front end has told all of an answer that begins so, and something of it."""
        if self.think is None:
            return self.passes(text)
        # What begins the reasoning is never told.
        said = text.replace(self.think[0], "", 1)
        return bool(said) and self.reasons(said) and self.passes(said)

    def goes_on(self, text: str) -> bool:
        """The same of a text in mid-answer that begins with one of the tokens."""
        if self.think is not None and self.think[1] in text:
            text = text.partition(self.think[1])[2]
            if not text:
                return False
        elif not self.reasons(text):
            return False
        return self.passes(text)


def watched_calls(name: str, tokenizer: object) -> tuple[str, str, Passes] | None:
    """The letters of a parser of calls, those that count at the begin of a text alone, and what it lets pass.

    None if it cannot be watched.
    """
    try:
        parsers, tool = resolve_name(_CALLS), resolve_name(_TOOL)
        tools = [tool(type="function", function={"name": "f", "parameters": {"type": "object"}})]

        def passes(text: str) -> bool:
            parser = parsers(tools, name, tokenizer=tokenizer)
            return bool(parser.parse_stream_chunk(text) == (text, []))

        detector = parsers(tools, name, tokenizer=tokenizer).detector
        begin = detector.bot_token or detector.tool_call_start_token
        # Of Qwen's the line break is no part of what is looked for.
        letters = {mark.strip()[0] for mark in (begin, detector.eot_token) if mark}
        alone = {sign for sign in string.punctuation if sign not in letters and not passes(sign)}
        letters |= alone
        fits = len(alone) <= _MOST_ALONE and _lets_pass(
            letters, parsers(tools, name, tokenizer=tokenizer).parse_stream_chunk, ("", [])
        )
    except _BROKEN:
        return None
    return ("".join(letters), "".join(alone), passes) if fits else None


def watched_reasoning(name: str, tokenizer: object) -> tuple[tuple[str, str], Passes] | None:
    """How reasoning begins and ends, and what its parser lets pass; None if it cannot be watched."""
    if name.lower() in _BY_TEMPLATE:
        return None
    try:
        parsers = resolve_name(_REASONING)

        def parser(*, forced: bool) -> Any:  # noqa: ANN401 - SGLang's
            return parsers(name, stream_reasoning=True, force_reasoning=forced, tokenizer=tokenizer)

        def reasons(text: str) -> bool:
            return bool(parser(forced=True).parse_stream_chunk(text)[0] == text)

        detector = parser(forced=True).detector
        think = (detector.think_start_token, detector.think_end_token)
        letters = {mark.strip()[0] for mark in think}
        swapped = parser(forced=True).parse_stream_chunk
        fits = _lets_pass(letters, swapped, ("", "")) and (
            # Behind the end all is text.
            swapped(think[1]) == ("", "")
            and _lets_pass(letters, lambda text: swapped(text)[::-1], ("", ""))
            and _lets_pass(letters, lambda text: _either(parser(forced=False), text), ("", ""))
        )
    except _BROKEN:
        return None
    return (think, reasons) if fits else None


def tokens_with(vocabulary: Mapping[str, int], letters: Iterable[str]) -> frozenset[int]:
    """Tokens with one of these ASCII letters, which all tokenizers write as they are."""
    wanted = set(letters)
    return frozenset(number for token, number in vocabulary.items() if not wanted.isdisjoint(token))


def tokens_of(vocabulary: Mapping[str, int], letters: str) -> frozenset[int]:
    """Tokens whose text begins with one of these letters."""
    return frozenset(number for token, number in vocabulary.items() if token[:1] and token[0] in letters)


def _either(parser: Any, text: str) -> tuple[str, object]:  # noqa: ANN401 - SGLang's
    reasoning, normal = parser.parse_stream_chunk(text)
    return (reasoning or "") + (normal or ""), ""


def _lets_pass(letters: set[str], parse: Callable[[str], tuple[Any, Any]], nothing: tuple[str, Any]) -> bool:
    return all(parse(text) == (text, nothing[1]) for text in _ORDINARY if letters.isdisjoint(text))
