"""The settings of the two listeners, and the limits of HTTP that both share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.daemon.settings.values import Number, WholeNumber, check_host, check_path

_ALLOWED_HOST: JsonDict = {"allowed": "an IP address or a host name, without a port"}
_Host = Annotated[str, AfterValidator(check_host)]
_Port = Annotated[WholeNumber, Field(ge=0, le=65535)]
_Path = Annotated[Path, AfterValidator(check_path)]
_Bytes = Annotated[WholeNumber, Field(ge=1024, le=1 << 30)]
_Limit = Annotated[Number, Field(ge=0.05, le=3600)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class DataSection(_Section):
    """The data plane: what clients of the models talk to."""

    host: _Host = Field(
        "127.0.0.1",
        description="Address that clients reach; 0.0.0.0 or :: for all.",
        json_schema_extra=_ALLOWED_HOST,
    )
    port: _Port = Field(8080, description="Port of the OpenAI API; 0 takes any free port.")
    max_body_bytes: _Bytes = Field(16 << 20, description="Largest request body; a larger one gets 413.")
    max_in_flight: Annotated[WholeNumber, Field(ge=1, le=100_000)] = Field(
        1024,
        description="Answers in flight over all tenants, a request counting prompts times `n`; more get 429.",
    )
    max_outputs: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(
        128, description="Answers that one request may ask for: prompts times `n`."
    )
    max_stops: Annotated[WholeNumber, Field(ge=0, le=10_000)] = Field(
        64, description="Stop texts of one request."
    )
    max_prompt_tokens: Annotated[WholeNumber, Field(ge=1, le=100_000_000)] = Field(
        1_048_576, description="Token ids in one request, where a prompt is given as ids."
    )
    max_body_values: Annotated[WholeNumber, Field(ge=1000, le=10_000_000)] = Field(
        50_000, description="Keys, lists, objects and texts in a body of more than 256 KiB."
    )


class AdminSection(_Section):
    """The admin plane: REST, metrics and health, for operators."""

    host: _Host = Field("127.0.0.1", description="Address of the admin API.", json_schema_extra=_ALLOWED_HOST)
    port: _Port = Field(8081, description="Port of the admin API; 0 takes any free port.")
    token_file: _Path | None = Field(
        None,
        description="File with the admin token; made on the first start. Unset: admin-token in state_dir.",
    )
    reader_token_file: _Path | None = Field(
        None,
        description="File with the hash of the token that only reads; see `pdmuxd token`. "
        "Unset: reader-token.sha256 in state_dir.",
    )
    allow_remote: bool = Field(
        False, description="Must be true for a host that is not loopback: the admin API is not encrypted."
    )


class HttpSection(_Section):
    """What a connection may cost, on both listeners."""

    body_timeout_s: _Limit = Field(60.0, description="Seconds that a body may take to arrive.")
