"""What it costs to pause a model's own forward between layers, and whether the logits are those of the whole.

    python tests/lab layer-pauses --model llama-8b --out FOLDER
    python tests/lab layer-pauses --model qwen3-30b-a3b --fp8 --out FOLDER
    python tests/lab layer-pauses --model tiny --layers 32 --out FOLDER         (on a CPU as well)

Made-up weights, SGLang's model runner without a server. One prompt is prefilled whole and in slices of two
layers, on all SMs and on a partition, and across both; two prefills are set aside in each other. Then what
the host needs to launch a slice, by turns, each on an idle device: by SGLang's own split, by pauses, and by
pauses while each layer asks SGLang's settings about context parallelism ("asking"); `_more_us` has the
quarters of the differences to the first of these. Then whole prefills, and decode steps from a graph, with
the layers as they are and with layers that may pause.
Ends by itself after `--budget-s`, loading not counted. Exit code 1 if logits differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpu_servers.model_folder import SHAPES, write_model_folder
from in_sglang.bare_runner import BareRunner, apart
from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.internals.layerpauses import (
    LayerPauses,
    as_extend,
    ask_settings_once,
    decoder_layers,
    drop,
)
from pdmuxd.engine.sglang.internals.splitting import ROUNDINGS
from pdmuxd.engine.sglang.partition_tables import make_table, sm_rules_of

SLICE = 2
"""Layers that serving launches at a time."""
DECODE_BATCH = 8
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
"""As in the configuration of Qwen3-30B-A3B-FP8."""
ON_GPU = torch.cuda.is_available()
Streams = Callable[[], AbstractContextManager[object]]


class Arms:
    """Both ways to prefill by layers, and the layers as they are."""

    def __init__(self, bare: BareRunner) -> None:
        self.bare = bare
        self.layers = decoder_layers(bare.runner.model, bare.layers)
        self.pauses = LayerPauses(self.layers)
        self._pausing = [layer.forward for layer in self.layers]
        self._own = bare.runner.forward_split_prefill
        self.has_own = hasattr(bare.runner.model, "forward_split_prefill")
        self._layout = sglang().boundary_layout
        self._asking = self._layout._cp_gathers_over_attn_cp
        ask_settings_once(self._layout)
        self._kept = self._layout._cp_gathers_over_attn_cp

    def take(self, *, pauses: bool, asking: bool = False) -> None:
        """Launch by pauses, or as SGLang does; `asking`: each layer asks SGLang's settings, as without us."""
        runner = self.bare.runner
        self._layout._cp_gathers_over_attn_cp = self._asking if asking else self._kept
        for layer, pausing in zip(self.layers, self._pausing, strict=True):
            layer.__dict__.pop("forward", None)
            if pauses:
                layer.forward = pausing
        runner.forward_split_prefill = self._paused if pauses else self._own

    def _paused(self, batch: Any, reinit_attn_backend: bool = False, forward_count: int = 1) -> Any:
        return self.pauses.launch(self.bare.runner, batch, forward_count)


def synchronize() -> None:
    """Wait until the device is idle."""
    if ON_GPU:
        torch.cuda.synchronize()


# --- the same logits


def compare(arms: Arms, prompts: list[list[int]], streams: dict[str, Streams]) -> dict[str, float]:
    """The largest difference to the whole on the same SMs, over the logits' deviation."""
    bare, found = arms.bare, {}
    arms.take(pauses=False)
    whole = {name: _on(stream, lambda: bare.whole(prompts, 2)) for name, stream in streams.items()}
    deviation = float(whole["all"][0].double().std())
    found["whole again"] = apart(bare.whole(prompts, 2), whole["all"]) / deviation
    if arms.has_own:
        own = _on(streams["all"], lambda: bare.by_layers(prompts, SLICE, 2))
        found["SGLang's own split"] = apart(own, whole["all"]) / deviation
    arms.take(pauses=True)
    for name, stream in streams.items():
        for layers in (1, SLICE, 7):
            got = _on(stream, partial(bare.by_layers, prompts, layers, 2))
            found[f"by {layers} on {name}"] = apart(got, whole[name]) / deviation
    found["across both"] = (
        apart([_across(arms, prompts, list(streams.values()))], whole["all"][:1]) / deviation
    )
    found["set aside"] = _set_aside(arms, prompts, whole["all"][0]) / deviation
    return found


def _on(stream: Streams, run: Callable[[], Any]) -> Any:
    synchronize()
    with stream():
        got = run()
    synchronize()
    return got


def _begin(arms: Arms, prompts: list[list[int]]) -> Any:
    return arms.bare.forward_batch(arms.bare.batch(prompts), by_layers=True)


def _across(arms: Arms, prompts: list[list[int]], streams: list[Streams]) -> Any:
    """The partition changes at each slice."""
    arms.bare.clear()
    forward = _begin(arms, prompts)
    turn = 0
    while forward.split_index < arms.bare.layers:
        out = _on(
            streams[turn % len(streams)], lambda: arms.bare.runner.forward(forward, split_forward_count=SLICE)
        )
        turn += 1
    return out.logits_output.next_token_logits.clone()


def _set_aside(arms: Arms, prompts: list[list[int]], expected: Any) -> float:
    """Two at a time, by turns; a third is dropped halfway."""
    bare = arms.bare
    bare.clear()
    forwards = [_begin(arms, prompts), _begin(arms, prompts), _begin(arms, prompts)]
    ended: list[Any] = []
    while len(ended) < 2:
        for number, forward in enumerate(forwards):
            if forward.split_index >= bare.layers:
                continue
            if number == 2 and forward.split_index >= bare.layers // 2:
                drop(forward)
                continue
            if forward.split_index:
                with as_extend(forward):
                    bare.runner.attn_backend.init_forward_metadata(forward)
            out = bare.runner.forward(forward, split_forward_count=SLICE)
            if forward.split_index >= bare.layers:
                ended.append(out.logits_output.next_token_logits.clone())
    return max(apart([one], [expected]) for one in ended)


# --- what the host needs


def slices(arms: Arms, prompts: list[list[int]], deadline_s: float, rounds: int) -> Iterator[dict[str, Any]]:
    """Microseconds to launch a slice, by its place in the prefill and by arm."""
    took: dict[tuple[str, str], list[float]] = {}
    names = ("sglang", "asking", "pauses") if arms.has_own else ("asking", "pauses")
    for turn in range(rounds):
        if turn > 3 and time.monotonic() > deadline_s:
            break
        for name in random.Random(turn).sample(names, len(names)):
            arms.take(pauses=name != "sglang", asking=name != "pauses")
            # Python's caches are of the one before.
            for _ in _prefill(arms, prompts):
                pass
            for place, taken_s in _prefill(arms, prompts):
                if turn:
                    took.setdefault((place, name), []).append(taken_s * 1e6)
    for place in ("first", "middle", "last"):
        row: dict[str, Any] = {"slice": place, "count": len(took[place, names[0]])}
        for name in names:
            row[f"{name}_us"] = statistics.median(took[place, name])
        for name in names[1:]:
            # By the same slice of the same turn: a machine's speed changes from turn to turn.
            more = [a - b for a, b in zip(took[place, name], took[place, names[0]], strict=True)]
            row[f"{name}_more_us"] = [round(one, 1) for one in statistics.quantiles(more, n=4)]
        yield _with_ratio(row, names[0], names[-1])
    counts = {"first": 1, "middle": -(-arms.bare.layers // SLICE) - 2, "last": 1}
    row = {"slice": "a whole prefill"}
    for name in names:
        row[f"{name}_us"] = sum(statistics.median(took[place, name]) * n for place, n in counts.items())
    yield _with_ratio(row, names[0], names[-1])


def _with_ratio(row: dict[str, Any], first: str, second: str) -> dict[str, Any]:
    return row | {"ratio": row[f"{second}_us"] / row[f"{first}_us"]}


def _prefill(arms: Arms, prompts: list[list[int]]) -> Iterator[tuple[str, float]]:
    runner, layers = arms.bare.runner, arms.bare.layers
    arms.bare.clear()
    forward = _begin(arms, prompts)
    while forward.split_index < layers:
        at = forward.split_index
        synchronize()
        began_s = time.perf_counter()
        runner.forward(forward, split_forward_count=SLICE)
        took_s = time.perf_counter() - began_s
        yield "first" if not at else "last" if forward.split_index >= layers else "middle", took_s


def untouched(arms: Arms, prompts: list[list[int]], rounds: int) -> Iterator[dict[str, Any]]:
    """Whole prefills and decode steps: layers as they are, and layers that may pause."""
    bare, runner = arms.bare, arms.bare.runner
    took: dict[tuple[str, str], list[float]] = {}
    steady = bare.prompts(*(64,) * DECODE_BATCH, seed=5)
    bare.clear()
    decoding = bare.batch(steady, answer=8 * rounds + 16)
    logits = runner.forward(bare.forward_batch(decoding)).logits_output.next_token_logits.clone()
    for turn in range(2 * rounds):
        for name in ("as they are", "may pause")[:: 1 if turn % 2 else -1]:
            arms.take(pauses=name == "may pause")
            step = bare.next_step(decoding, logits)
            took.setdefault(("decode step", name), []).append(_timed(partial(runner.forward, step)))
    for turn in range(rounds):
        for name in ("as they are", "may pause")[:: 1 if turn % 2 else -1]:
            arms.take(pauses=name == "may pause")
            bare.clear()
            forward = bare.forward_batch(bare.batch(prompts))
            took.setdefault(("whole prefill", name), []).append(_timed(partial(runner.forward, forward)))
    for what in ("decode step", "whole prefill"):
        names = {"plain": "as they are", "pausing": "may pause"}
        row: dict[str, Any] = {
            "launch": what,
            "graph": bool(runner.decode_cuda_graph_runner) and "step" in what,
        }
        row |= {f"{short}_us": statistics.median(took[what, name][2:]) for short, name in names.items()}
        yield _with_ratio(row, *names)


def _timed(run: Callable[[], object]) -> float:
    """Microseconds of the host, on an idle device."""
    synchronize()
    began_s = time.perf_counter()
    run()
    return (time.perf_counter() - began_s) * 1e6


# --- the model


def load(options: argparse.Namespace, folder: Path) -> BareRunner:
    """The model with made-up weights, and decode graphs on a GPU."""
    changes: dict[str, Any] = {}
    if options.layers:
        changes["num_hidden_layers"] = options.layers
    if options.fp8:
        changes["quantization_config"] = FP8
    if not ON_GPU:
        changes["torch_dtype"] = "float32"
    write_model_folder(options.model, folder, **changes)
    if ON_GPU:
        given: dict[str, Any] = {"mem_fraction_static": 0.88, "cuda_graph_max_bs_decode": DECODE_BATCH}
        given |= {"disable_prefill_cuda_graph": True, "max_running_requests": 16, "context_length": 8192}
    else:
        given = {"device": "cpu", "dtype": "float32", "attention_backend": "torch_native"}
        given |= {"mem_fraction_static": 0.3, "max_total_tokens": 8192, "max_running_requests": 16}
    bare = BareRunner(folder, **given)
    bare.weigh()
    bare.runner.init_cuda_graphs()
    return bare


def partitions() -> dict[str, Streams]:
    """Ways to launch: on all SMs, and on a partition of about three quarters of them."""
    if not ON_GPU:
        return {"all": nullcontext, "a partition": nullcontext}
    from pdmuxd.engine.sglang.streams.cuda import CudaStreams

    device = torch.cuda.get_device_properties(0)
    rules: SmRules = sm_rules_of(device.multi_processor_count, capability=device.major)
    table = make_table(rules, PluginEnvironment(policy="auto", link=None, partitions=None))
    streams = CudaStreams(table, 0)
    split = [group for group in streams.groups if group.prefill_sms and group.decode_sms]
    group = min(split, key=lambda one: abs(one.prefill_sms - 0.75 * rules.total_sms))

    @contextmanager
    def on_partition() -> Iterator[None]:
        with streams.on(group.prefill):
            yield

    return {"all": nullcontext, f"{group.prefill_sms} SMs": on_partition}


def main(argv: list[str] | None = None) -> int:
    """Rows as they come, as JSON; 1 if logits differ by more than roundings."""
    parser = argparse.ArgumentParser(
        prog="python tests/lab layer-pauses",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--layers", type=int, help="in place of the model's own number")
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--budget-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    name = options.model + ("-fp8" if options.fp8 else "")
    with (options.out / f"layer-pauses-{name}.jsonl").open("a") as file, torch.inference_mode():

        def say(row: dict[str, Any]) -> None:
            row = {"model": name, "at_s": round(time.monotonic() - began_s, 1)} | row
            print(json.dumps(row), file=file, flush=True)
            print(json.dumps(row), flush=True)

        with tempfile.TemporaryDirectory() as folder:
            bare = load(options, Path(folder) / name)
        arms = Arms(bare)
        backend, dtype = type(bare.runner.attn_backend).__name__, bare.runner.dtype
        say({"attention": backend, "dtype": str(dtype), "layers": bare.layers, "own": arms.has_own})
        deadline_s = time.monotonic() + options.budget_s
        prompts = bare.prompts(options.tokens, min(90, options.tokens), seed=1)
        found = compare(arms, prompts, partitions())
        allowed = ROUNDINGS * torch.finfo(dtype).eps
        worst = max(value for key, value in found.items() if not key.startswith("SGLang"))
        say({"differences": found, "allowed": allowed, "equal": worst <= allowed})
        gc.disable()
        for row in slices(arms, prompts, deadline_s, options.rounds):
            say(row)
        for row in untouched(arms, prompts, options.rounds):
            say(row)
    return 0 if worst <= allowed else 1
