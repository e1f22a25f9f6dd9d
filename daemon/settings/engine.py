"""The settings of the engine process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.config import JsonDict

from pdmuxd.daemon.settings.values import Number, WholeNumber, check_path, not_allowed
from pdmuxd.engine.core.errors import PolicyError, SettingsError
from pdmuxd.engine.sglang.launch.flags import split_extra

_DEFAULT_POLICY = "auto"
"""The registry's parser, imported late because that takes long: most commands read the settings, few need a
policy."""


def _allowed_policy(extra: JsonDict) -> None:
    from pdmuxd.engine.core.policies.registry import known_policies

    extra["allowed"] = "one of " + ", ".join(info.syntax for info in known_policies())


_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Path = Annotated[Path, AfterValidator(check_path)]
_SHIPPED_PROFILE = "h200-llama-8b-served"
"""The emulator's default profile; naming it here keeps its loader out of every command's start."""

EngineKind = Literal["auto", "emulator", "sglang"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class SglangSection(_Section):
    """A real engine: SGLang with pdmuxd's plugin."""

    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        None,
        description="The model that SGLang serves.",
        json_schema_extra={"allowed": "a model's folder, or its name on a model hub"},
    )
    python: _Path | None = Field(
        None,
        description="The Python that has SGLang. Unset: the daemon's own if it has, else that of "
        "`pdmuxd install-sglang`, or of .venv-sglang beside the daemon's environment.",
    )
    tp_size: Annotated[WholeNumber, Field(ge=1, le=64)] = Field(
        1, description="GPUs that hold one copy of the model (tensor parallelism)."
    )
    partitions: Annotated[str, Field(pattern=r"^\d{1,4},\d{1,4}(;\d{1,4},\d{1,4}){0,23}$")] | None = Field(
        None,
        description="The SM splits that policies choose among, and that streams and decode graphs are made "
        "for at start, as PREFILL,DECODE;... besides those that engine.policy brings along. Unset: the "
        "device's, on Hopper 8 to 80 SMs for decode and the rest for prefill.",
        json_schema_extra={"allowed": "up to 24 splits, such as 116,16;100,32"},
    )
    partition_kernels: bool = Field(
        True,
        description="Whether matrix products and attention on a partition run with kernels for its SMs. The "
        "first start times them, for about half a minute.",
    )
    shipped_profile: bool = Field(
        True,
        description="Whether a profile that pdmuxd brings along for this GPU and model is put in force where "
        "none ever was, until one is measured.",
    )
    extra_args: str = Field(
        "",
        description="More of SGLang's own flags, split as a shell would.",
        json_schema_extra={
            "allowed": "SGLang's flags, without those that pdmuxd sets or that break multiplexing"
        },
    )

    @field_validator("extra_args")
    @classmethod
    def _harmless(cls, text: str) -> str:
        try:
            split_extra(text)
        except SettingsError as error:
            raise not_allowed(str(error)) from error
        return text


class EngineSection(_Section):
    """The engine process that the daemon keeps running."""

    kind: EngineKind = Field(
        "auto",
        description="Which engine serves; auto takes sglang where there is a GPU and engine.sglang.model "
        "is set, else the emulator.",
    )
    profile: _Name = Field(
        _SHIPPED_PROFILE,
        description="What the emulated GPU and model are.",
        json_schema_extra={"allowed": "the name of a shipped profile, or the path of a .json file"},
    )
    policy: str = Field(
        _DEFAULT_POLICY,
        description="How SMs are split between prefill and decode.",
        json_schema_extra=_allowed_policy,
    )
    model_name: _Name | None = Field(
        None,
        description="The model's name in the API. Unset: the name in the profile, or of the model's folder.",
    )
    start_timeout_s: Annotated[Number, Field(ge=1, le=7200)] | None = Field(
        None,
        description="Seconds in which a started engine must serve. Unset: 60 for the emulator, 1200 for "
        "SGLang, which loads a model and captures graphs.",
    )
    token_path: Literal["direct", "http"] = Field(
        "direct",
        description="How tokens of plain streamed answers reach the gateway: direct, from the engine's "
        "scheduler; or http, through the engine's own detokenizer and HTTP server, as all others do.",
    )
    token_buffer_bytes: Annotated[WholeNumber, Field(ge=4096, le=1 << 30)] = Field(
        256 << 10,
        description="With direct, the bytes of one answer that wait for a client that reads slowly; what "
        "comes after them is sent with the answer's end.",
    )
    restart_backoff_initial_s: Annotated[Number, Field(ge=0.01, le=3600)] = Field(
        0.1,
        description="Seconds from an engine's end to its restart; doubles with each that served under 10 s.",
    )
    restart_backoff_max_s: Annotated[Number, Field(ge=0.01, le=3600)] = Field(
        30.0, description="Seconds that the wait for a restart grows to."
    )
    sglang: SglangSection = SglangSection()

    @property
    def has_direct_tokens(self) -> bool:
        """Whether tokens may come straight from the scheduler."""
        return self.token_path == "direct"  # noqa: S105 - no password

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, spec: str) -> str:
        if spec == _DEFAULT_POLICY:
            return spec
        from pdmuxd.engine.core.policies.registry import parse_policy

        try:
            parse_policy(spec)
        except PolicyError as error:
            raise not_allowed(str(error)) from error
        return spec

    @field_validator("restart_backoff_max_s")
    @classmethod
    def _backoff_grows(cls, value: float, info: ValidationInfo) -> float:
        initial = info.data.get("restart_backoff_initial_s")
        if initial is not None and value < initial:
            raise not_allowed(f"allowed is at least engine.restart_backoff_initial_s, which is {initial:g}")
        return value

    @field_validator("sglang")
    @classmethod
    def _has_model(cls, section: SglangSection, info: ValidationInfo) -> SglangSection:
        if info.data.get("kind") == "sglang" and section.model is None:
            raise not_allowed(
                "allowed is a model's folder, or its name on a model hub: engine.kind sglang needs one "
                "(pdmuxd serve --engine sglang --model PATH)",
                key="engine.sglang.model",
            )
        return section
