"""`chat_template_kwargs`: switches for the model's chat template, and not another template."""

from __future__ import annotations

from msgspec import Raw

from pdmuxd.daemon.gateway.contract.limits import Limits
from pdmuxd.daemon.gateway.contract.refusals import check_field, refuse_field
from pdmuxd.daemon.gateway.contract.values import decoder

_MAX_SWITCHES = 32
"""Models' templates have fewer than ten."""
_KWARGS = decoder(dict[str, bool | int | float | str | list[str] | None] | None)
_PARAMETERS = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "processor_kwargs", "self"),
    }
)
"""Parameters of the method that renders the template (transformers' `apply_chat_template`): they would
replace the engine's own, and `chat_template` is a program."""


def template_kwargs(param: str, value: Raw, limits: Limits) -> None:  # noqa: ARG001 - a Check
    """Raises: RequestError 400 for what is no switch."""
    given = check_field(param, value, _KWARGS) or {}
    if len(given) > _MAX_SWITCHES:
        raise refuse_field(f"`{param}` has {len(given)} entries; allowed are {_MAX_SWITCHES}", param=param)
    for name in given:
        if name in _PARAMETERS:
            raise refuse_field(
                f"`{param}.{name[:40]}` is not a switch of the chat template; it is set here",
                param=f"{param}.{name[:40]}",
                code="unsupported",
            )
