"""Whether answers under load are those of an idle engine, on a GPU, whose kernels and graphs a CPU has not.

    python tests/lab agreement --results RESULTS.jsonl [--model-shape SHAPE] [--extra="--quantization fp8"]
        [--partitions "96,36;52,80"]

A small model of a family, or of a class of SGLang's by its name (MixtralForCausalLM; `tiny_classes.py` of the
tests has them), whose weights make every token of a prompt matter (bf16), is asked each prompt
alone, greedily, and told to name its second choice of each token. Then all prompts come within two seconds,
once per policy or round after round for so many seconds (`--for-s`), so that prefills run layer by layer
beside decode, in chunks, fused, from the cache and preempted. In bf16 the sums of another batch round
otherwise, so a token may fall to the second choice where both are nearly as likely; from there on an answer
goes its own way. The first difference of every answer must be such a tie; else the exit code is 3, as it is
where most prompts share their answer, so that no difference would show. Among them are requests whose answer
is held to a regular expression, which it must match. CI compares exactly, in float32, on a CPU
(tests/sglang).

`--policies stock` asks SGLang as it comes, without the plugin: what differs there is not ours. FP8 by
`--quantization fp8` cannot be judged otherwise: SGLang scales the experts' inputs by the largest of a whole
batch, and then answers depend on what runs beside them. Shapes that end in `-fp8` have scales for each token.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

sys.path.append(str(Path(__file__).parents[2] / "support"))

import made_up_weights
from tiny_classes import BASE, MODELS

from gpu_servers import sglang_plugin
from gpu_servers.linked import linked, steps_by
from gpu_servers.model_folder import write_model_folder, write_weights
from gpu_servers.options import RunOptions, new_parser, parse_run
from gpu_servers.outcome import kept_and_printed
from pdmuxd.daemon.bench.arms import Arm, split_names
from pdmuxd.daemon.bench.load.client import make_idle
from pdmuxd.daemon.bench.models import CONTEXT_TOKENS, DUMMY, ServedModel
from pdmuxd.daemon.bench.results import build
from pdmuxd.daemon.bench.servers.server import ArmError

TIE = 0.3
"""Largest difference of log probabilities that rounding may turn round."""
STOCK = "stock"
"""In place of policies: SGLang without the plugin."""
_WITHIN_S = 2.0
_HEADS: dict[str, object] = {"head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
_SIZES: dict[str, object] = {
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "intermediate_size": 1024,
    "vocab_size": 512,
}
_EXPERTS: dict[str, object] = {"moe_intermediate_size": 256, "num_experts": 4, "num_experts_per_tok": 4}
_CONFIGS: dict[str, dict[str, object]] = {
    "tiny": _SIZES | _HEADS,
    "qwen3-30b-a3b": _SIZES | _HEADS | _EXPERTS,
    "qwen3-8b-fp8": _SIZES | _HEADS,
    "qwen3-30b-a3b-fp8": _SIZES | _HEADS | _EXPERTS,
    "gpt-oss-20b": _SIZES
    | {"head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
    | {"num_local_experts": 4, "num_experts_per_tok": 4, "experts_per_token": 4}
    | {"layer_types": ["sliding_attention", "full_attention"] * 4},
    # As wide as the model itself: how many of Marlin's blocks wait for each other depends on that.
    "llama-8b-gptq": {"num_hidden_layers": 4, "vocab_size": 512},
}
"""Over each family's shape. All experts are chosen: where two are nearly as good, rounding chooses the other
one (4 of 16 experts in float32 on a CPU: 3 of 48 answers differed by up to 0.05, with 4 of 4 none of 48)."""
_OF_A_CLASS: dict[str, object] = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "head_dim": 128,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 4,
    "n_group": 1,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "query_pre_attn_scalar": 128,
    "max_position_embeddings": 16_384,
    "original_max_position_embeddings": 16_384,
}
"""Over what a tiny class has of these; DeepSeek's latent sizes are its own, as its kernels want them."""
_CLASS_WEIGHT = 1.0
"""Over the root of their width. Tests in float32 take 1.6, with which layers enlarge what bf16 rounds."""
_CLASS_FLAGS = (*DUMMY, "--disable-shared-experts-fusion")
"""A shared expert would be one more to choose, and all are chosen."""
_SHARED = 4
"""Prompts that begin alike."""
_FORM = "(red|green|blue)-[0-9]{3}-(yes|no)"
_HELD = 16
"""Requests held to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RunOptions):
    """The command line."""

    policies: list[str]
    model_shape: str = "tiny"
    count: int = 96
    longest: int = 6000
    new_tokens: int = 32
    for_s: float = 0.0
    partitions: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """To one prompt, alone."""

    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    """By how much of log probability each token was ahead of the second choice."""


@dataclass(slots=True)
class Agreement:
    """Of one policy's answers with the lone ones."""

    same: int = 0
    ties: int = 0
    wrong: int = 0
    widest: float = 0.0
    """Largest margin at a first difference."""
    misshapen: int = 0
    """Answers that do not match what they were held to."""

    def add(self, alone: Answer, tokens: Sequence[int]) -> None:
        """Compare one answer."""
        pairs = zip(alone.tokens, tokens, strict=False)
        first = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
        if len(tokens) != len(alone.tokens):
            self.wrong += 1
        elif first is None:
            self.same += 1
        else:
            self.widest = max(self.widest, alone.margins[first])
            self.ties += alone.margins[first] <= TIE
            self.wrong += alone.margins[first] > TIE


def prompts_of(count: int, *, longest: int, vocab: int) -> list[list[int]]:
    """Of 4 tokens up to the longest, many short ones; some share the first half."""
    rng = random.Random("agreement")
    found: list[list[int]] = []
    for number in range(count):
        size = int(4 * (longest / 4) ** rng.random())
        begin = found[number - number % _SHARED][: size // 2] if number % _SHARED else []
        found.append(begin + [rng.randrange(3, vocab) for _ in range(size - len(begin))])
    return found


async def ask(session: aiohttp.ClientSession, tokens: list[int], *, new: int, margins: bool) -> Answer:
    """One prompt. Raises: ArmError."""
    body: dict[str, Any] = {
        "input_ids": tokens,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": new, "ignore_eos": True},
    }
    if margins:
        body |= {"return_logprob": True, "top_logprobs_num": 2}
    async with session.post("/generate", json=body) as response:
        if response.status != 200:
            raise ArmError(f"{response.status}: {(await response.text())[:200]}")
        said = await response.json()
    best_two = said["meta_info"].get("output_top_logprobs", []) if margins else []
    return Answer(
        tokens=tuple(said["output_ids"]), margins=tuple(first[0] - second[0] for first, second in best_two)
    )


async def ask_held(session: aiohttp.ClientSession, tokens: list[int]) -> str:
    """One prompt whose answer is held to a form; what became of it."""
    params = {"temperature": 0.0, "max_new_tokens": 24, "regex": _FORM}
    body = {"input_ids": tokens, "sampling_params": params}
    async with session.post("/generate", json=body) as response:
        return str((await response.json())["text"]) if response.status == 200 else await response.text()


async def ask_together(
    session: aiohttp.ClientSession, prompts: Sequence[list[int]], *, new: int
) -> tuple[list[Answer], list[str]]:
    """All within two seconds, and among them those whose answer is held to a form."""

    async def later(number: int) -> Answer:
        await asyncio.sleep(_WITHIN_S * number / len(prompts))
        return await ask(session, prompts[number], new=new, margins=False)

    async def held(number: int) -> str:
        await asyncio.sleep(_WITHIN_S * number / _HELD)
        return await ask_held(session, prompts[number % len(prompts)])

    free, formed = await asyncio.gather(
        asyncio.gather(*map(later, range(len(prompts)))), asyncio.gather(*map(held, range(_HELD)))
    )
    return list(free), list(formed)


def made_model(shape: str, folder: Path, config: dict[str, Any]) -> tuple[Path, dict[str, str]]:
    """The folder of a small model, and what its server needs in its environment.

    A family's has weights in files; a class gets its weights by a plugin, when it is loaded.
    """
    if shape in _CONFIGS:
        return write_weights(write_model_folder(shape, folder, **{**_CONFIGS[shape], **config})), {}
    sizes = {**_sized({**BASE, **MODELS[shape]}), "architectures": [shape], **config}
    plugin = folder / "plugin"
    shutil.rmtree(plugin, ignore_errors=True)
    plugin.mkdir(parents=True)
    shutil.copy(made_up_weights.__file__, plugin)
    found = sglang_plugin.install(plugin, made_up_weights.NAME, made_up_weights.__name__)
    path = (found["PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")]))
    found |= {"PYTHONPATH": os.pathsep.join(path), made_up_weights.WEIGHT: str(_CLASS_WEIGHT)}
    return write_model_folder("tiny", folder, **sizes), found


def _sized(config: Mapping[str, Any]) -> dict[str, Any]:
    """A tiny class, as large as a GPU's kernels want it."""
    own: dict[str, Any] = {name: _OF_A_CLASS.get(name, value) for name, value in config.items()}
    own |= {name: _sized(own[name]) for name in ("text_config", "rope_scaling") if own.get(name)}
    return own | ({"head_dim": own["qk_rope_head_dim"]} if "kv_lora_rank" in own else {})


async def measure(options: Options, folder: Path) -> dict[str, Any]:
    """Start the server, ask alone, then together under each policy. Raises: ServerError, ArmError."""
    shape, dtype = options.model_shape, "float32" if options.cpu else "bfloat16"
    config: dict[str, Any] = {"torch_dtype": dtype, **options.config}
    made, environment = made_model(shape, options.work / f"agreement-{shape}", config)
    model = ServedModel(
        name="agreement",
        folder=made,
        vocab=512,
        context_tokens=CONTEXT_TOKENS,
        flags=_CLASS_FLAGS if environment else (),
        emulator_profile="",
    )
    # Of the policies with splits of their own, the arm would make the server with all splits of `duet`.
    first = "auto" if options.partitions else options.policies[0]
    is_stock = options.policies == [STOCK]
    arm, log = Arm(name=STOCK if is_stock else f"ours:{first}"), options.log_dir / "agreement.log"
    extra = ("--grammar-backend", "xgrammar")
    prompts = prompts_of(options.count, longest=options.longest, vocab=512)
    async with contextlib.AsyncExitStack() as stack:
        base_url, link = await stack.enter_async_context(
            linked(
                arm,
                options,
                model=model,
                folder=folder,
                log=log,
                tp_size=options.tp_size,
                extra=extra,
                environment=arm.environment(cpu=options.cpu, tp_size=options.tp_size) | environment,
                partitions=options.partitions,
            )
        )
        session = await stack.enter_async_context(
            aiohttp.ClientSession(base_url, timeout=aiohttp.ClientTimeout(total=120.0))
        )
        alone = [await ask(session, prompt, new=options.new_tokens, margins=True) for prompt in prompts]
        found = {policy: Agreement() for policy in options.policies}
        steps: dict[str, Counter[str]] = {policy: Counter() for policy in options.policies}
        rounds, begin_s = 0, time.monotonic()
        while not rounds or time.monotonic() < begin_s + options.for_s:
            rounds += 1
            for policy, agreement in found.items():
                await make_idle(session)
                if not is_stock:
                    await link.set(policy=policy, tbt_ms=20.0)
                    link.reset()
                together, formed = await ask_together(session, prompts, new=options.new_tokens)
                agreement.misshapen += sum(not re.fullmatch(_FORM, text) for text in formed)
                for one, other in zip(alone, together, strict=True):
                    agreement.add(one, other.tokens)
                if not is_stock:
                    steps[policy].update(steps_by(link.report()["steps"], parts=1))
            print(said_of(rounds, time.monotonic() - begin_s, found), flush=True)
    return {
        "what": "agreement",
        "shape": shape,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "build": build(),
        "tp_size": options.tp_size,
        "extra": list(options.extra),
        "rounds": rounds,
        "seconds": round(time.monotonic() - begin_s, 1),
        "prompts": len(prompts),
        "distinct": len({answer.tokens for answer in alone}),
        "policies": {
            policy: asdict(agreement) | {"widest": round(agreement.widest, 4), "steps": dict(steps[policy])}
            for policy, agreement in found.items()
        },
    }


def said_of(rounds: int, took_s: float, found: Mapping[str, Agreement]) -> str:
    """What all rounds so far have shown: a run that is cut short has said it."""
    sums = Counter[str]()
    for one in found.values():
        sums.update(asdict(one))
    return (
        f"  {rounds} rounds, {took_s:.0f} s: {sums['same']} the same, {sums['ties']} ties, "
        f"{sums['wrong']} WRONG, {sums['misshapen']} MISSHAPEN"
    )


def is_met(found: dict[str, Any]) -> bool:
    """No answer differs but by a tie, most do not differ, and each has the form that it was held to.

    Where prompts have the same answer, a wrong one would not differ: most must have one of their own.
    """
    policies = found["policies"].values()
    wrong = sum(one["wrong"] + one["misshapen"] for one in policies)
    if 2 * found["distinct"] < found["prompts"]:
        return False
    return bool(policies) and not wrong and all(one["same"] >= one["ties"] for one in policies)


def lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    said = [f"{found['distinct']} of {found['prompts']} prompts have an answer of their own"]
    for policy, one in found["policies"].items():
        steps = ", ".join(f"{count} {mode}" for mode, count in sorted(one["steps"].items()))
        said.append(
            f"{policy}: {one['same']} answers the same, {one['ties']} from a tie on another "
            f"({one['widest']:g} apart), {one['wrong']} WRONG, {one['misshapen']} MISSHAPEN; steps: {steps}"
        )
    return said


def options_of(argv: list[str] | None = None) -> Options:
    """The command line."""
    parser = new_parser("agreement", __doc__)
    parser.add_argument(
        "--policies",
        type=split_names,
        default=["static:96,36", "chunked:256", "muxwise", "auto"],
    )
    parser.add_argument(
        "--model-shape", choices=(*sorted(_CONFIGS), *sorted(MODELS)), default="tiny", help="made small"
    )
    parser.add_argument("--partitions", default="", help="in place of the device's")
    parser.add_argument("--count", type=int, default=96, help="prompts")
    parser.add_argument("--longest", type=int, default=6000, help="tokens of a prompt")
    parser.add_argument("--new-tokens", type=int, default=32, help="of each answer")
    parser.add_argument("--for-s", type=float, default=0.0, help="go on for so long (default: one round)")
    parser.add_argument("--tp-size", type=int, default=1)
    options = parse_run(parser, argv, Options)
    if STOCK in options.policies and len(options.policies) > 1:
        parser.error(f"--policies: {STOCK} stands alone, since it is another server")
    return options


def main(argv: list[str] | None = None) -> int:
    """Compare, keep, print."""
    options = options_of(argv)
    return kept_and_printed(partial(measure, options), options.results, lines=lines, is_met=is_met)
