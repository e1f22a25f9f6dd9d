"""Where a serving engine is found."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdmuxd.daemon.tokens.receiver import TokenReceiver
from pdmuxd.engine.link.messages import Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRanges:
    """What the engine counts in. None: it did not say, and is not held to anything."""

    vocab_size: int | None = None
    max_context_tokens: int | None = None

    @classmethod
    def of(cls, hello: Hello) -> EngineRanges:
        """Read them from an engine's introduction.

        An engine that does not tell its vocabulary has the one of its model's shape. The shape's context may
        be shorter than the one in force, so it is not used.
        """
        shape = hello.model_shape
        vocab = hello.vocab_size or (shape.vocab if shape is not None else 0)
        return cls(vocab_size=vocab or None, max_context_tokens=hello.max_context_tokens or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """One running engine's HTTP side."""

    base_url: str
    """Without a slash at the end."""
    api_key: str = field(repr=False)
    models: frozenset[str]
    context_tokens: int | None = None
    """How many tokens prompt and answer may have together; None: it does not say."""
    partition_groups: int = 0
    """How many groups of SMs it can use."""
    ranges: EngineRanges = EngineRanges()
    """What it counts in."""
    tokens: TokenReceiver | None = field(default=None, repr=False)
    """Where its scheduler's tokens come in; None: all answers go through its front end."""
