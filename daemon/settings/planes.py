"""The settings of the two listeners, and the limits of HTTP that both share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from pdmuxd.daemon.settings.values import (
    Number,
    WholeNumber,
    check_header_name,
    check_host,
    check_host_names,
    check_networks,
    check_origins,
    check_path,
)

_ALLOWED_HOST: JsonDict = {"allowed": "an IP address or a host name, without a port"}
_ALLOWED_NAMES: JsonDict = {"allowed": "host names without ports, with commas between"}
_Host = Annotated[str, AfterValidator(check_host)]
_ALLOWED_NETWORKS: JsonDict = {"allowed": "IP addresses and networks such as 10.0.0.0/8, with commas between"}
_ALLOWED_ORIGINS: JsonDict = {"allowed": "origins such as https://chat.example.org with commas between, or *"}
_Origins = Annotated[str, AfterValidator(check_origins)]
_HostNames = Annotated[str, AfterValidator(check_host_names)]
_Networks = Annotated[str, AfterValidator(check_networks)]
_HeaderName = Annotated[str, AfterValidator(check_header_name)]
_ALLOWED_PROXIES: JsonDict = {}
_ALLOWED_HEADER: JsonDict = {"allowed": "the name of a header such as X-Forwarded-User"}
_Port = Annotated[WholeNumber, Field(ge=0, le=65535)]
_Path = Annotated[Path, AfterValidator(check_path)]
_Bytes = Annotated[WholeNumber, Field(ge=1024, le=1 << 30)]
_Connections = Annotated[WholeNumber, Field(ge=1, le=100_000)]
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
    max_logprobs: Annotated[WholeNumber, Field(ge=0, le=10_000)] = Field(
        20, description="Log probabilities that one request may ask for with each token."
    )
    max_prompt_tokens: Annotated[WholeNumber, Field(ge=1, le=100_000_000)] = Field(
        1_048_576, description="Token ids in one request, where a prompt is given as ids."
    )
    max_body_values: Annotated[WholeNumber, Field(ge=1000, le=10_000_000)] = Field(
        50_000, description="Keys, lists, objects and texts in a body of more than 256 KiB."
    )
    first_byte_timeout_s: Annotated[Number, Field(ge=0.05, le=86_400)] = Field(
        600.0,
        description="Seconds until an answer begins, waiting included; then 504. "
        "One that is not streamed begins when it is complete.",
    )
    engine_wait_s: Annotated[Number, Field(ge=0, le=3600)] = Field(
        0.0,
        description="Seconds that a request may wait for an engine that starts, is restarted or is silent; "
        "0: 503 at once.",
    )
    quarantine_s: Annotated[Number, Field(ge=0, le=86_400)] = Field(
        600.0,
        description="Seconds that a request which was in flight when two engines died is refused, or a "
        "tenant whose requests alone were; 0: never, and all are released.",
    )
    max_connections: _Connections = Field(
        4096,
        description="Connections at once; fewer if the process may not open two files for each. "
        "One more takes the place of the one that has been without a request for longest.",
    )
    max_connections_per_peer: _Connections = Field(
        1024, description="Of these, from one address; behind a proxy set it as high as max_connections."
    )
    load_metrics: bool = Field(
        False,
        description="Whether /metrics here tells the load, without a key and without tenants' names, "
        "to routers that scrape engines.",
    )
    cors_origins: _Origins = Field(
        "",
        description="Pages whose scripts may call the data plane from a browser (CORS); none by default. "
        "A key in a page is everybody's who opens it.",
        json_schema_extra=_ALLOWED_ORIGINS,
    )
    trusted_peers: _Networks = Field(
        "",
        description="Routers whose x-llm-d-slo-* headers set a request's targets, and whose decision to "
        "trace it is followed. The connection's address counts, no header. Wrong keys count for the client "
        "that their X-Forwarded-For names last.",
        json_schema_extra=_ALLOWED_NETWORKS,
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
    allowed_hosts: _HostNames = Field(
        "",
        description="Names that requests may have in Host, besides IP addresses, localhost and admin.host.",
        json_schema_extra=_ALLOWED_NAMES,
    )
    max_connections: Annotated[WholeNumber, Field(ge=32, le=100_000)] = Field(
        256,
        description="Requests in progress at once; 16 of them are for health, readiness and metrics "
        "alone. Up to 6144 more connections may wait, if descriptors allow.",
    )
    max_body_bytes: _Bytes = Field(4 << 20, description="Largest request body; a larger one gets 413.")
    traffic_max_bytes: Annotated[WholeNumber, Field(ge=0, le=1 << 30)] = Field(
        16 << 20,
        description="Bytes of recent traffic kept on disk for replays: times, lengths, tenants and keyed "
        "hashes of prompts' beginnings, never text; 0 keeps none.",
    )
    proxy_peers: _Networks = Field(
        "",
        description="Addresses of a proxy that has logged in whom admin.proxy_header names, for the pages "
        "below /ui. The connection's address counts: whoever can connect from there may name anyone.",
        json_schema_extra=_ALLOWED_PROXIES,
    )
    proxy_header: _HeaderName = Field(
        "",
        description="Header in which that proxy names who has logged in, and which it takes from clients.",
        json_schema_extra=_ALLOWED_HEADER,
    )
    proxy_operators: str = Field(
        "",
        description="Names that may change things, with commas between; all others that it names only look.",
        json_schema_extra={"allowed": "names with commas between"},
    )
    metrics_need_token: bool = Field(
        False,
        description="Whether /metrics asks for an admin or reader token: it names tenants and their load to "
        "whoever reaches it.",
    )
    metrics_max_tenants: Annotated[WholeNumber, Field(ge=0, le=10_000)] = Field(
        100, description="Tenants with series of their own in /metrics; all others together are `_rest`."
    )


class HttpSection(_Section):
    """What a connection may cost, on both listeners."""

    max_header_bytes: Annotated[WholeNumber, Field(ge=1024, le=1 << 20)] = Field(
        32 << 10, description="Request line and headers together; more get 431."
    )
    max_headers: Annotated[WholeNumber, Field(ge=8, le=10_000)] = Field(
        100, description="Headers of one request; more get 431."
    )
    header_timeout_s: _Limit = Field(
        10.0, description="Seconds from a connection, or from a request's first byte, to its last header."
    )
    body_timeout_s: _Limit = Field(60.0, description="Seconds that a body may take to arrive.")
    keep_alive_s: _Limit = Field(65.0, description="Seconds that a connection may wait for its next request.")
    write_timeout_s: _Limit = Field(
        20.0, description="Seconds that a client may leave its answer unread, with all buffers full."
    )
    max_auth_failures: Annotated[WholeNumber, Field(ge=1, le=1_000_000)] = Field(
        30, description="Wrong keys or tokens from one address in a minute; more are answered slowly, by 429."
    )
