"""A plugin for SGLang, beside pdmuxd's own: chats that ask for no grammar think a while and then speak.

/v1/messages has no field for a grammar, and a model of random weights ends no thought by itself.
"""

from __future__ import annotations

from typing import Any

NAME = "pdmuxd_thoughtful_chats"
REGEX = r"<think>[a-z]{12} <[a-z]{9}</think>[a-z]{12} [a-z]{9}"


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    plain = ChatCompletionRequest.to_sampling_params

    def thoughtful(asked: Any, *given: Any, **named: Any) -> Any:
        return {**plain(asked, *given, **named), "regex": asked.regex or REGEX}

    ChatCompletionRequest.to_sampling_params = thoughtful
