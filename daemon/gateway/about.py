"""What routers ask of an engine, answered by the node: its model, its size, its load, and its headroom.

The names are SGLang's, so that what routes to SGLang routes to pdmuxd. The queue is the node's own: requests
without a first token, wherever they wait, since a router that saw only the engine's would send ever more.
Source: SGLang 0.5.23, `entrypoints/http_server.py`, `entrypoints/v1_loads.py`; llm-d's inference scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from pdmuxd.daemon.gateway.sglang_series import SglangSeries
from pdmuxd.engine.link.messages import EngineStats, Hello

SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")
LOADS = "/v1/loads"
LOAD_METRICS = "/metrics"
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_SERVER = "pdmuxd"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """The node at this moment. `hello` and `stats` are None while no engine serves."""

    hello: Hello | None
    stats: EngineStats | None
    waiting: int
    """Requests without a first token: at the gateway, in the engine's queue or in its prefill."""
    ttft_headroom_ratio: float
    """1 minus the largest share of its TTFT target that a waiting request has used; below 0 if late."""
    tbt_headroom_ratio: float
    """1 minus the share of the strictest TBT target, among requests that decode, that the last step took; 1
    if nothing decodes."""

    @property
    def running(self) -> int:
        """Requests that decode or are in prefill."""
        return 0 if self.stats is None else self.stats.running + self.stats.prefilling

    @property
    def queued(self) -> int:
        """Requests that neither decode nor are in prefill."""
        if self.stats is None:
            return self.waiting
        return max(self.stats.waiting, self.waiting - self.stats.prefilling)

    @property
    def token_usage(self) -> float:
        """Share of the KV pool in use."""
        if self.stats is None or not self.stats.kv_capacity_tokens:
            return 0.0
        return round(self.stats.kv_used_tokens / self.stats.kv_capacity_tokens, 4)

    @property
    def cache_hit_rate(self) -> float:
        """Share of all prompt tokens that were found in the prefix cache."""
        if self.stats is None or not self.stats.prompt_tokens:
            return 0.0
        return round(self.stats.reused_tokens / self.stats.prompt_tokens, 4)


def no_load() -> NodeLoad:
    """The load of a gateway without a daemon around it: nothing is known."""
    return NodeLoad(hello=None, stats=None, waiting=0, ttft_headroom_ratio=1.0, tbt_headroom_ratio=1.0)


def answer(path: str, load: NodeLoad) -> Mapping[str, Any]:
    """The JSON body for one of the paths above, except LOAD_METRICS, which is text."""
    if path in SERVER_INFO:
        return _server_info(load)
    return _model_info(load) if path in MODEL_INFO else _loads(load)


def _model_info(load: NodeLoad) -> Mapping[str, Any]:
    model = load.hello.model if load.hello else None
    return {"model_path": model, "served_model_name": model, "tokenizer_path": model, "is_generation": True}


def _server_info(load: NodeLoad) -> Mapping[str, Any]:
    """SGLang also shows its start arguments here, and its API key among them; those are left out."""
    hello = load.hello
    return {
        **_model_info(load),
        "version": hello.sglang_version or hello.engine_version if hello else "",
        "server": _SERVER,
        "pdmuxd_version": version("pdmuxd"),
        "status": "ready" if load.stats else "starting",
        "tp_size": hello.tensor_parallel.gpus if hello else 1,
        "dp_size": 1,
        "device": hello.device if hello else None,
        "max_total_num_tokens": hello.kv_capacity_tokens if hello else 0,
        "max_running_requests": hello.max_decode_bs if hello else 0,
        "max_prefill_tokens": hello.max_prefill_tokens if hello else 0,
        "disaggregation_mode": "null",
        "internal_states": [_one_load(load)],
    }


def _loads(load: NodeLoad) -> Mapping[str, Any]:
    hello = load.hello
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": hello.sglang_version or hello.engine_version if hello else "",
        "accelerator": hello.device if hello else None,
        "num_accelerators": hello.tensor_parallel.gpus if hello else 0,
        "loads": [_one_load(load)],
    }


def _one_load(load: NodeLoad) -> Mapping[str, Any]:
    stats = load.stats
    return {
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.queued,
        "num_total_reqs": load.running + load.queued,
        "num_used_tokens": stats.kv_used_tokens if stats else 0,
        "num_total_tokens": stats.kv_used_tokens if stats else 0,
        "max_total_num_tokens": stats.kv_capacity_tokens if stats else 0,
        "max_running_requests": load.hello.max_decode_bs if load.hello else 0,
        "token_usage": load.token_usage,
        "cache_hit_rate": load.cache_hit_rate,
        "pdmuxd_ttft_headroom": load.ttft_headroom_ratio,
        "pdmuxd_tbt_headroom": load.tbt_headroom_ratio,
    }


def anthropic_model(name: str) -> Mapping[str, str]:
    """A model as Anthropic's clients read it. When it was made is unknown: the epoch."""
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def anthropic_models(names: Iterable[str]) -> Mapping[str, Any]:
    """The list of models as Anthropic's clients read it, in one page."""
    data = [anthropic_model(name) for name in sorted(names)]
    ends = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[1]}


def metrics_text(load: NodeLoad, series: SglangSeries | None = None) -> bytes:
    """The same in Prometheus's format, under SGLang's names, with what its dashboard reads besides. It names
    no tenant."""
    series = series or SglangSeries()
    hello = load.hello
    model = (hello.model if hello else "").replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    label = f'model_name="{model}"'
    gauges = {
        "sglang:num_running_reqs": load.running,
        "sglang:num_queue_reqs": load.queued,
        "sglang:num_used_tokens": load.stats.kv_used_tokens if load.stats else 0,
        "sglang:max_total_num_tokens": load.stats.kv_capacity_tokens if load.stats else 0,
        "sglang:token_usage": load.token_usage,
        "sglang:cache_hit_rate": load.cache_hit_rate,
        "sglang:gen_throughput": round(series.tokens_per_s(load.stats), 2),
        "pdmuxd:ttft_headroom_ratio": load.ttft_headroom_ratio,
        "pdmuxd:tbt_headroom_ratio": load.tbt_headroom_ratio,
    }
    lines = [line for name, value in gauges.items() for line in _gauge(name, label, value)]
    pages = hello.kv_capacity_tokens if hello else 0
    lines += _gauge("sglang:cache_config_info", f'{label},page_size="1",num_pages="{pages}"', 1)
    lines += series.lines(label)
    return ("\n".join(lines) + "\n").encode()


def _gauge(name: str, labels: str, value: float) -> tuple[str, str]:
    return f"# TYPE {name} gauge", f"{name}{{{labels}}} {value:g}"
