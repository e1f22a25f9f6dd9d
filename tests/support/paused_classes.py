"""Real SGLang classes at tiny shapes on the CPU, whole and by layers: a program for SGLang's Python.

    python paused_classes.py FOLDER NAME...

SGLang is imported once. For each class one child compares logits, in SGLang's model runner; another compares
tokens, in its scheduler (`served_classes.py`). Each prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from served_classes import POLICIES, Served, policies_of
from stand_ins import PREFILLS_ONLY, stand_in
from tiny_classes import LAYERS, MODELS, write_folder

from in_sglang.bare_runner import BareRunner, apart
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.internals.layerpauses import (
    LayerPauses,
    as_extend,
    ask_settings_once,
    decoder_layers,
    drop,
)
from pdmuxd.engine.sglang.internals.slices import cut_into

STEPS = 3


def main(folder: Path, names: list[str]) -> None:
    """The named classes under all policies, or else all classes, each under its own."""
    torch.set_num_threads(1)
    for name in names or MODELS:
        policies = POLICIES if names else policies_of(name)
        _in_child("LOGITS", name, lambda name=name: Comparison(name, folder / "logits").run())
        _in_child(
            "TOKENS",
            name,
            lambda name=name, policies=policies: Served(name, folder / "tokens", policies).run(),
        )


def _in_child(what: str, name: str, run: Callable[[], dict[str, Any]]) -> None:
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        with torch.inference_mode():
            said = run()
    except BaseException as error:
        said = {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
    print(f"{what} " + json.dumps({"name": name} | said), flush=True)
    os._exit(0)


class Comparison:
    """One class, whole and by layers."""

    def __init__(self, name: str, folder: Path) -> None:
        stand_in(name)
        self.bare = BareRunner(
            write_folder(name, folder / name),
            device="cpu",
            dtype="float32",
            max_total_tokens=4096,
            max_running_requests=16,
            mem_fraction_static=0.3,
            attention_backend="torch_native",
        )
        self.runner = self.bare.runner
        self.runner.init_cuda_graphs()
        self.bare.weigh()
        self.steps = 0 if name in PREFILLS_ONLY else STEPS

    def run(self) -> dict[str, Any]:
        bare, steps = self.bare, self.steps
        first, second, steady = (
            bare.prompts(*n, seed=s) for s, n in enumerate([(37, 90), (150,), (5, 61, 20)])
        )
        expected = [bare.whole(one, steps) for one in (first, second, steady)]
        own = self._by_sglang(first) if hasattr(self.runner.model, "forward_split_prefill") else None
        self._install()
        said = {
            "again": apart(bare.whole(first, steps), expected[0]),
            "by_layers": max(apart(bare.by_layers(first, n, steps), expected[0]) for n in (1, 2, 4, LAYERS)),
            "slices": self._apart_in_slices(second, expected[1]),
            "set_aside": self._set_aside(first, second, steady, expected),
            "calls": self.pauses.calls,
            "own": None if own is None else apart([own], expected[0][:1]) / float(expected[0][0].std()),
        }
        return said | self._ends_badly(first, second, expected)

    def _install(self) -> None:
        self.layers = decoder_layers(self.runner.model, LAYERS)
        assert len(self.layers) == LAYERS, "no list of decoder layers"
        pauses, runner = LayerPauses(self.layers), self.runner
        self.pauses = pauses
        ask_settings_once(sglang().boundary_layout)
        runner.forward_split_prefill = lambda batch, reinit_attn_backend=False, forward_count=1: (
            pauses.launch(runner, batch, forward_count)
        )

    def _apart_in_slices(self, prompt: Any, expected: list[Any]) -> float | str:
        """The difference over the deviation of the logits; or why layers of this class cannot be cut."""
        worst = 0.0
        for slices in (2, 5):
            try:
                with cut_into(slices):
                    found = self.bare.by_layers(prompt, 3, self.steps, slices)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            worst = max(worst, apart(found, expected) / float(expected[0].std()))
        return worst

    def _set_aside(self, first: Any, second: Any, steady: Any, expected: list[list[Any]]) -> float:
        """Two prefills set aside in each other, decode steps of a third batch between their layers."""
        bare = self.bare
        bare.clear()
        decoding = bare.batch(steady)
        tokens = [self.runner.forward(bare.forward_batch(decoding)).logits_output.next_token_logits.clone()]
        forwards = {
            name: bare.forward_batch(bare.batch(prompts), by_layers=True)
            for name, prompts in (("a", first), ("b", second))
        }
        ended: dict[str, Any] = {}
        owner = None
        for turn, which in enumerate("aabbabbabababbaabababab" * 2):
            forward = forwards[which]
            if forward.split_index >= LAYERS:
                continue
            if owner is not forward and forward.split_index:
                with as_extend(forward):
                    self.runner.attn_backend.init_forward_metadata(forward)
            owner = forward
            out = self.runner.forward(forward, split_forward_count=1)
            if forward.split_index >= LAYERS:
                ended[which] = out.logits_output.next_token_logits.clone()
            if turn < self.steps:
                tokens.append(bare.step(decoding, tokens[-1]))
                owner = None
        worst = [apart([ended[which]], expected[number][:1]) for number, which in enumerate("ab")]
        return max(*worst, apart(tokens, expected[2]))

    def _ends_badly(self, first: Any, second: Any, expected: list[list[Any]]) -> dict[str, Any]:
        """A prefill dropped in mid-flight, then one whose layer fails; and what comes after is as ever."""
        forward = self._begun(second)
        paused = forward.pdmuxd_forward
        drop(forward)
        assert paused.is_done
        assert self.pauses.running is None
        forward = self._begun(second)
        kept = self.layers[3].forward
        said = "lost"
        try:
            self.layers[3].forward = _broken
            self.runner.forward(forward, split_forward_count=4)
        except ValueError as error:
            said = str(error)
        finally:
            self.layers[3].forward = kept
        assert self.pauses.running is None
        drop(forward)
        return {"error": said, "after": apart(self.bare.by_layers(first, 2, self.steps), expected[0])}

    def _begun(self, prompts: list[list[int]]) -> Any:
        self.bare.clear()
        forward = self.bare.forward_batch(self.bare.batch(prompts), by_layers=True)
        self.runner.forward(forward, split_forward_count=2)
        return forward

    def _by_sglang(self, prompts: list[list[int]]) -> Any:
        """SGLang's own split, or None if it is not to be had."""
        try:
            return self.bare.by_layers(prompts, 2)[0]
        except AssertionError:
            return None


def _broken(*_: object, **__: object) -> None:
    raise ValueError("a layer's own error")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
