"""One tiny class in SGLang's own scheduler, in this process: its stock loop, then ours, by policy."""

from __future__ import annotations

import os
import random
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang.srt.managers.io_struct import AbortReq, TokenizedGenerateReqInput
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.runtime_context import SpawnRanks, publish, spawn_world_rank
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import PortArgs
from stand_ins import MASKS_IMAGES, PREFILLS_ONLY, stand_in
from tiny_classes import MODELS, write_folder
from tiny_images import images_of, takes_images, with_places

from in_sglang.bare_runner import weigh
from pdmuxd.engine.core.latency import DecodeCoefficients, FusedCoefficients, PrefillCoefficients
from pdmuxd.engine.link.messages import EngineSettings, TenantSlo
from pdmuxd.engine.link.predictors import Predictors, SoloRun
from pdmuxd.engine.loop.loop import EngineLoop
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.launch.arguments import parse
from pdmuxd.engine.sglang.launch.groups import find_device, write_groups_file
from pdmuxd.engine.sglang.launch.server import _parse, plugin_environment, server_flags
from pdmuxd.engine.sglang.partition_tables import make_table
from pdmuxd.engine.sglang.tracked_request import TENANT_KEY

POLICIES = ("static:84,48", "muxwise", "auto", "auto:nofuse")
FUSED = "chunked:64"
"""For the class that masks its images: in fused steps SGLang masks the same."""


def policies_of(name: str) -> tuple[str, ...]:
    """One of the first three, by turns, and the last, which sets prefills aside: all take twice as long."""
    own = POLICIES[list(MODELS).index(name) % (len(POLICIES) - 1)], POLICIES[-1]
    return (*own, FUSED) if name == MASKS_IMAGES else own


FLAGS = (
    *(
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--attention-backend",
        "torch_native",
        "--load-format",
        "dummy",
    ),
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "8192", "--max-running-requests", "24"),
    *("--skip-tokenizer-init", "--sampling-backend", "pytorch"),
)
LENGTHS = (400, 20, 8, 60, 300, 12, 25, 90, 260, 15, 40, 7, 130, 30)
"""Of the prompts. The short ones come while layers of a long one before them are left, with less time."""
PER_TOKEN_S, URGENT_S, LAX_S = 0.02, 1.5, 600.0
"""As predicted, and TTFT targets of short and long prompts: a long prompt is predicted to take 5 to 8 s, so
that `auto` sets it aside for a short one."""
SHORT = 64
MOST_S = 180.0
ALIKE = (6, 10)
"""Requests whose text is the same, and whose images are not."""
ABORTED = {3: 1, 8: 0, 12: 2}
"""By request, after so many turns since it was sent."""


class Served:
    """One class, served."""

    def __init__(self, name: str, folder: Path, policies: tuple[str, ...]) -> None:
        self.name, self.policies = name, policies
        stand_in(name)
        model = write_folder(name, folder / name)
        images = ["--enable-multimodal"] if takes_images(name) else []
        arguments = parse(["--model", str(model), "--policy", POLICIES[0], "--", *FLAGS, *images])
        environment = PluginEnvironment(policy=POLICIES[0], link=None, partitions=None)
        table = make_table(find_device(on_cpu=True).rules, environment)
        self.sizes = sorted({n for one in table.groups for n in (one.prefill_sms, one.decode_sms) if n})
        groups = folder / f"{name}.groups"
        count = write_groups_file(groups, table)
        os.environ.update(plugin_environment(arguments, table))
        args = _parse(server_flags(arguments, groups=count, groups_file=groups))
        rank = SpawnRanks(world_rank=spawn_world_rank(args, tp_rank=0, pp_rank=0), dp_rank=None, gpu_id=0)
        publish(args, role="scheduler", ranks=rank)
        self.scheduler: Any = Scheduler(args, PortArgs.init_new(args))
        weigh(self.scheduler.tp_worker.model_runner.model)
        chance = random.Random(name)
        shared = [chance.randrange(3, 500) for _ in range(64)]
        self.prompts = [
            (shared if length > 2 * len(shared) else []) + [chance.randrange(3, 500) for _ in range(length)]
            for length in LENGTHS
        ]
        self.outputs = [1 if name in PREFILLS_ONLY else chance.choice((1, 2, 6, 9)) for _ in LENGTHS]
        if takes_images(name):
            first, second = ALIKE
            self.prompts[second] = self.prompts[first]
            self.outputs[first] = self.outputs[second] = 9
            self.prompts[::2] = [with_places(ids, 1 + (len(ids) > SHORT)) for ids in self.prompts[::2]]
        self.load = Load(self.scheduler, name, self.prompts, self.outputs)

    def run(self) -> dict[str, Any]:
        """How many answers differ from the stock loop's, by policy, and what happened meanwhile."""
        load = self.load
        load.begin("stock", aborts=False)
        load.when_done = lambda: setattr(self.scheduler, "gracefully_exit", True)
        self.scheduler.event_loop_normal()
        self.scheduler.gracefully_exit = False
        expected = load.answers()
        found: dict[str, Any] = {"distinct": len({tuple(one) for one in expected}), "policies": {}}
        found |= {"images": takes_images(self.name), "alike": expected[ALIKE[0]] == expected[ALIKE[1]]}

        def drive(loop: EngineLoop) -> None:
            asked = settings_asked()
            for version, policy in enumerate(self.policies, 1):
                settings = settings_of(policy, version, self.sizes)
                ack = loop.policy_runtime.apply(settings, loop.ledger)
                assert ack.error is None, ack.error
                self.scheduler.flush_cache()
                before = loop.prefill.preemptions
                load.begin(policy, aborts=True)
                layers = Layers(loop)
                until_s = time.monotonic() + MOST_S
                while not (load.is_done and loop.is_idle):
                    assert time.monotonic() < until_s, f"{policy}: not all ended"
                    loop.turn()
                found["policies"][policy] = {
                    "in_force": loop.policy_runtime.policy.name,
                    "wrong": load.wrong(expected),
                    "cut_short": load.cut_short(),
                    "set_aside": loop.prefill.preemptions - before,
                    "launches": layers.count(),
                }
            found["asked"] = len(asked)

        EngineLoop.run = drive  # type: ignore[method-assign]
        self.scheduler.run_event_loop()
        return found


def settings_asked() -> list[None]:
    """Has an element for each time from here on that a layer asks the settings about context parallelism."""
    layout: Any = sglang().boundary_layout
    asked, ask = list[None](), layout.is_dsa_enable_prefill_cp

    def noted() -> bool:
        asked.append(None)
        return bool(ask())

    layout.is_dsa_enable_prefill_cp = noted
    return asked


class Layers:
    """Counts launches of layers from here on."""

    def __init__(self, loop: EngineLoop) -> None:
        self._count = 0
        stage, launch = loop.prefill, type(loop.prefill).launch

        def counted(*given: Any, **named: Any) -> Any:
            self._count += 1
            return launch(stage, *given, **named)

        stage.launch = counted  # type: ignore[method-assign]
        self._stage = stage

    def count(self) -> int:
        """And no longer."""
        del self._stage.launch
        return self._count


class Load:
    """Requests by turns of the scheduler, in place of those that come over a socket."""

    def __init__(self, scheduler: Any, model: str, prompts: list[list[int]], outputs: list[int]) -> None:
        self._model, self._prompts, self._outputs = model, prompts, outputs
        self._requests: dict[str, Any] = {}
        self.when_done: Callable[[], object] = lambda: None
        self._turn, self._aborts = 0, False
        self.begin("", aborts=False)
        # It is frozen.
        receiver: Any = type(scheduler.request_receiver)
        receiver.recv_requests = lambda _self, local_reqs=None: self._received()
        add = scheduler._add_request_to_queue

        def kept(request: Any, *given: Any, **named: Any) -> Any:
            self._requests[request.rid] = request
            return add(request, *given, **named)

        scheduler._add_request_to_queue = kept

    def begin(self, name: str, *, aborts: bool) -> None:
        """All again."""
        self._name, self._turn, self._aborts = name, 0, aborts
        self._requests.clear()

    @property
    def is_done(self) -> bool:
        """Whether all have been sent and have ended; one that is aborted while it waits has no end."""
        ended = [
            request.finished() or (self._aborts and number in ABORTED)
            for number, request in enumerate(self._requests.values())
        ]
        return all(ended) and len(ended) == len(self._prompts)

    def answers(self) -> list[list[int]]:
        """In the order of the prompts."""
        return [list(self._requests[self._id(i)].output_ids) for i in range(len(self._prompts))]

    def wrong(self, expected: list[list[int]]) -> list[int]:
        """Requests whose tokens are others than expected; an aborted one may end anywhere."""
        aborted = ABORTED if self._aborts else {}
        return [
            number
            for number, (said, should) in enumerate(zip(self.answers(), expected, strict=True))
            if said != (should[: len(said)] if number in aborted else should)
        ]

    def cut_short(self) -> int:
        """How many were aborted before their end."""
        return sum(len(said) < n for said, n in zip(self.answers(), self._outputs, strict=True))

    def _id(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _received(self, local_reqs: Any = None) -> list[Any]:
        if self._name == "stock" and not all(request.output_ids for request in self._requests.values()):
            return []  # Gemma 3 ends SGLang itself where one of a batch with images has none
        turn, self._turn = self._turn, self._turn + 1
        found: list[Any] = []
        if not turn % 2 and turn // 2 < len(self._prompts):
            found.append(self._request(turn // 2))
        if self._aborts:
            found += [AbortReq(rid=self._id(i)) for i, after in ABORTED.items() if 2 * i + 1 + after == turn]
        if self.is_done:
            self.when_done()
        return found

    def _request(self, number: int) -> TokenizedGenerateReqInput:
        ids = self._prompts[number]
        tenant = "short" if len(ids) < SHORT else "long"
        params = SamplingParams(
            max_new_tokens=self._outputs[number],
            temperature=0.0,
            ignore_eos=True,
            custom_params={TENANT_KEY: tenant},
        )
        params.normalize(None)
        return TokenizedGenerateReqInput(
            rid=self._id(number),
            input_text="",
            input_ids=array("q", ids),
            input_embeds=None,
            mm_inputs=images_of(self._model, ids, number),
            token_type_ids=None,
            sampling_params=params,
            return_logprob=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            token_ids_logprob=None,
            stream=False,
        )


def settings_of(policy: str, version: int, sizes: list[int]) -> EngineSettings:
    """Two tenants, and predictions under which a short prompt overtakes a long one."""
    prefill = PrefillCoefficients(
        per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=PER_TOKEN_S, fixed_s=0.01
    )
    decode = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.02, fixed_s=0.25)
    fused = FusedCoefficients(prefill=prefill, per_reused_s=0.0)
    predictors = Predictors(
        profile_id=9,
        profile="slow",
        provenance="a test",
        solo_run=tuple(SoloRun(sms=sms, prefill=prefill, decode=decode, fused=fused) for sms in sizes),
        guard_default_ratio=1.0,
    )
    tenants = tuple(
        TenantSlo(
            tenant=tenant,
            ttft_fixed_s=ttft_s,
            ttft_per_1k_new_tokens_s=0.0,
            tbt_s=0.6,
            attainment_ratio=0.99,
            slo_version=version,
            max_wait_ms=1_800_000,
        )
        for tenant, ttft_s in (("short", URGENT_S), ("long", LAX_S))
    )
    return EngineSettings(version=version, policy=policy, tenants=tenants, predictors=predictors)
