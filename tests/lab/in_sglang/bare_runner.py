"""SGLang's model runner without scheduler or server: batches of made-up prompts, whole and by layers."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import torch
from sglang.benchmark import one_batch as ob
from sglang.srt.distributed import bootstrap
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_device

VOCABULARY = 500
"""Made-up prompts are of smaller tokens: each model here has more."""
_WEIGHT = 1.6
"""Of made-up weights, over the root of their width: SGLang's own are so small that logits hardly differ."""


class BareRunner:
    """One model in this process. SGLang allows of one."""

    def __init__(self, folder: Path, *, port_offset: int = 0, **arguments: Any) -> None:
        args = ob.ServerArgs(
            model_path=str(folder),
            load_format="dummy",
            skip_tokenizer_init=True,
            disable_radix_cache=True,
            sampling_backend="pytorch",
            **arguments,
        )
        args.resolve_once()
        ob._set_envs_and_config(args)
        port = ob.PortArgs.init_new(args).nccl_port + port_offset
        rank = ob.SpawnRanks(world_rank=ob.spawn_world_rank(args, tp_rank=0, pp_rank=0), gpu_id=0)
        ob.publish(args, role="scheduler", ranks=rank)
        ob._init_process_global_configs()
        config = ob.ModelConfig.from_server_args(args)
        bootstrap.init_parallel_runtime(server_args=args, device=get_device().device, dist_port=port)
        bootstrap.init_layer_runtime(model_config=config)
        runner = ob.ModelRunner(
            model_config=config,
            mem_fraction_static=args.mem_fraction_static,
            gpu_id=0,
            nccl_port=port,
            server_args=args,
        )
        runner.alloc_memory_pool()
        runner.init_attention_backends()
        self.runner: Any = runner
        self.layers = int(config.num_hidden_layers)

    def weigh(self) -> None:
        """Give it weights under which every token of a prompt matters."""
        weigh(self.runner.model)

    def prompts(self, *lengths: int, seed: int) -> list[list[int]]:
        """Random tokens, the same for the same seed."""
        chance = torch.Generator().manual_seed(seed)
        return [torch.randint(3, VOCABULARY, (n,), generator=chance).tolist() for n in lengths]

    def clear(self) -> None:
        """Free every KV slot."""
        self.runner.req_to_token_pool.clear()
        self.runner.token_to_kv_pool_allocator.clear()

    def batch(self, prompts: list[list[int]], *, answer: int = 16) -> Any:
        """A batch of these prompts, with KV taken."""
        runner = self.runner
        requests = []
        for number, ids in enumerate(prompts):
            params = ob.SamplingParams(temperature=0, max_new_tokens=answer)
            request = ob.Req(
                rid=str(number),
                origin_input_text="",
                origin_input_ids=array("q", ids),
                sampling_params=params,
            )
            request.full_untruncated_fill_ids = request.origin_input_ids
            request.logprob_start_len, request.extend_end = -1, len(ids)
            requests.append(request)
        allocator = runner.token_to_kv_pool_allocator
        cache = ob.TreeCacheNamespace(page_size=1, device=runner.device, token_to_kv_pool_allocator=allocator)
        batch = ob.ScheduleBatch.init_new(
            reqs=requests,
            req_to_token_pool=runner.req_to_token_pool,
            token_to_kv_pool_allocator=allocator,
            tree_cache=cache,
            model_config=runner.model_config,
            enable_overlap=False,
            spec_algorithm=ob.SpeculativeAlgorithm.NONE,
        )
        batch.prepare_for_extend()
        if batch.input_ids is None:
            tokens, batch.prefill_input_ids_cpu = batch.prefill_input_ids_cpu, None
            batch.input_ids = (
                tokens.to(runner.device) if tokens.device.type != runner.device else tokens.clone()
            )
        return batch

    def forward_batch(self, batch: Any, *, by_layers: bool = False) -> Any:
        """What a forward of it is about."""
        if by_layers:
            batch.forward_mode = ForwardMode.SPLIT_PREFILL
        return ob.ForwardBatch.init_new(batch, self.runner, return_hidden_states_before_norm=False)

    def step(self, batch: Any, logits: Any) -> Any:
        """The logits of a decode step after these."""
        return self.runner.forward(self.next_step(batch, logits)).logits_output.next_token_logits.clone()

    def next_step(self, batch: Any, logits: Any) -> Any:
        """What that decode step is about."""
        batch.forward_mode = ForwardMode.EXTEND
        tokens = logits.argmax(-1).to(torch.int64)
        batch.input_ids = tokens
        batch.prepare_for_decode()
        if batch.input_ids is None:
            batch.input_ids = tokens
        return self.forward_batch(batch)

    def whole(self, prompts: list[list[int]], steps: int = 0) -> list[Any]:
        """The logits of a prefill in one go, and of decode steps after it."""
        self.clear()
        batch = self.batch(prompts)
        logits = self.runner.forward(self.forward_batch(batch)).logits_output.next_token_logits.clone()
        assert torch.isfinite(logits).all(), "the model itself gives no finite logits"
        return self.and_steps(batch, logits, steps)

    def by_layers(self, prompts: list[list[int]], layers: int, steps: int = 0, slices: int = 1) -> list[Any]:
        """The same, so many layers at a time, each of them cut into `slices` by tokens."""
        self.clear()
        batch = self.batch(prompts)
        forward = self.forward_batch(batch, by_layers=True)
        while forward.split_index < self.layers * slices:
            out = self.runner.forward(forward, split_forward_count=layers)
        return self.and_steps(batch, out.logits_output.next_token_logits.clone(), steps)

    def and_steps(self, batch: Any, logits: Any, steps: int) -> list[Any]:
        """These logits, and those of decode steps after them."""
        found = [logits]
        for _ in range(steps):
            found.append(self.step(batch, found[-1]))
        return found


def apart(got: list[Any], expected: list[Any]) -> float:
    """The largest difference."""
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(got, expected, strict=True))


def weigh(model: torch.nn.Module) -> None:
    """Make up weights under which every token of a prompt matters, the same each time."""
    torch.manual_seed(3)
    for name, tensor in model.named_parameters():
        if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            continue
        if tensor.dim() >= 2:
            tensor.normal_(std=_WEIGHT * tensor.shape[-1] ** -0.5)
        elif name.endswith("norm.weight"):
            tensor.fill_(1.0)  # with SGLang's own, nearly zero, layers add nothing to a token's embedding
