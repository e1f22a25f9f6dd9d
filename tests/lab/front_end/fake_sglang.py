"""SGLang's server with a scheduler that computes nothing; run by SGLang's Python, for `bench_front_end.py`.

What a token passes behind the model is SGLang's: the requests, the output streamer, the process of the
detokenizer, that of the tokenizer and of HTTP. The stand-in appends one token to each request in every step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import zmq
from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.managers import scheduler as sglang_scheduler
from sglang.srt.managers.io_struct import AbortReq, FreezeGCReq, TokenizedGenerateReqInput, sock_recv
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH, Req
from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.server_args import prepare_server_args
from sglang.srt.utils import freeze_gc

STEP = "FAKE_STEP_S"
LINK = "FAKE_LINK"
"""Where tokens are handed over directly: the address of a link, or empty."""
COUNTS = "FAKE_COUNTS"
"""A file: now and then the time, steps and tokens so far, and seconds of its thread that these took."""
_PERIOD_S = 0.1
CONTEXT_TOKENS = 100_000


class FakeScheduler:
    """One step after the other, at fixed times; what it takes on its thread is written down."""

    def __init__(self, server_args: Any, port_args: Any) -> None:
        from sglang.srt.disaggregation.utils import DisaggregationMode
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
        from sglang.srt.utils.hf_transformers_utils import get_tokenizer

        channels = SchedulerIpcChannels.create(
            port_args=port_args,
            is_rank_zero=True,
            skip_tokenizer_init=False,
            metrics_enabled=False,
            enable_scripted_runtime=False,
        )
        self.to_detokenizer = channels.send_to_detokenizer
        self.receiver = channels.recv_from_tokenizer
        self.tokenizer = get_tokenizer(server_args.model_path)
        self.streamer: Any = SchedulerOutputStreamer(
            send_to_detokenizer=channels.send_to_detokenizer,
            tree_cache=None,
            server_args=server_args,
            is_generation=True,
            spec_algorithm=SpeculativeAlgorithm.NONE,
            disaggregation_mode=DisaggregationMode.NULL,
            enable_hicache_storage=lambda: False,
        )
        self.direct: Any = None
        if link := os.environ.get(LINK):
            from pdmuxd.engine.sglang.internals import direct_tokens

            holder = SimpleNamespace(output_streamer=self.streamer)
            own = SimpleNamespace(
                tokenizer=self.tokenizer,
                server_args=server_args,
                model_config=SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"])),
                batch_result_processor=holder,
            )
            self.direct = direct_tokens.install(cast(Any, own), link)
            self.streamer = holder.output_streamer
        self.garbage: Any = None
        if garbage_link := os.environ.get("PDMUXD_LINK"):
            from pdmuxd.engine.sglang.internals.garbage import ProcessGarbage

            self.garbage = ProcessGarbage(garbage_link)
        self.step_s = float(os.environ[STEP])
        self.running: dict[str, Any] = {}
        self.words = [
            number for text, number in self.tokenizer.get_vocab().items() if len(text) > 2 and text.isascii()
        ]

    def run(self) -> None:
        """Until the process is ended."""
        due_s = written_s = time.monotonic()
        steps = tokens = 0
        cost_s = 0.0
        counts = Path(os.environ[COUNTS]).open("w", buffering=1)  # noqa: SIM115 - as long as the process
        while True:
            self._receive(due_s)
            if self.direct is not None:
                self.direct.poll()
            if self.running:
                requests = self._step(steps)
                begin_s = time.thread_time()
                self.streamer.stream_output(requests, False)
                cost_s += time.thread_time() - begin_s
                tokens += len(requests)
                steps += 1
            due_s = max(due_s + self.step_s, time.monotonic())
            if due_s - written_s > _PERIOD_S:
                written_s = due_s
                counts.write(json.dumps([time.monotonic(), steps, tokens, cost_s]) + "\n")

    def _receive(self, until_s: float) -> None:
        while True:
            left_ms = 1000.0 * (until_s - time.monotonic())
            if not self.receiver.poll(max(0.0, left_ms)):
                return
            try:
                message = sock_recv(self.receiver, zmq.NOBLOCK)
            except zmq.Again:
                return
            if isinstance(message, TokenizedGenerateReqInput):
                self._begin(message)
            elif isinstance(message, AbortReq):
                self._abort(message)
            elif isinstance(message, FreezeGCReq):
                handle_freeze_gc(self, message)

    def _begin(self, message: Any) -> None:
        message.unwrap_pickle_fields()
        request = Req(
            message.rid,
            message.input_text,
            array("q", message.input_ids),
            message.sampling_params,
            stream=message.stream,
            eos_token_ids=set(),
            http_worker_ipc=message.http_worker_ipc,
            vocab_size=len(self.tokenizer),
            time_stats=message.time_stats,
        )
        request.tokenizer = self.tokenizer
        self.running[message.rid] = request

    def _abort(self, message: Any) -> None:
        for rid in [rid for rid in self.running if message.abort_all or rid.startswith(message.rid)]:
            request = self.running.pop(rid)
            request.finished_reason = FINISH_ABORT()
            self.streamer.stream_output([request], False)

    def _step(self, number: int) -> list[Any]:
        words, count = self.words, len(self.words)
        requests = list(self.running.values())
        for position, request in enumerate(requests):
            request.output_ids.append(words[(number * 31 + position * 7) % count])
            most = request.sampling_params.max_new_tokens
            if len(request.output_ids) >= most:
                request.finished_reason = FINISH_LENGTH(length=most)
                request.finished_len = most
                del self.running[request.rid]
        return requests


def handle_freeze_gc(scheduler: FakeScheduler, request: Any) -> None:
    """As SGLang's does: this process freezes, then the detokenizer is told."""
    freeze_gc("Scheduler", request.gc_threshold)
    if scheduler.garbage is not None:
        scheduler.garbage.hold(
            "scheduler",
            is_idle=lambda: not scheduler.running,
            keeps_thresholds=bool(request.gc_threshold),
        )
    scheduler.to_detokenizer.send_output(request, request)


def run_scheduler_process(
    server_args: Any,
    port_args: Any,
    gpu_id: int,
    tp_rank: int,
    pp_rank: int,
    dp_rank: int | None,
    pipe_writer: Any,
    *_: Any,
    **__: Any,
) -> None:
    """In the place of SGLang's."""
    own = sglang_scheduler
    own.publish(
        server_args,
        role="scheduler",
        ranks=own.SpawnRanks(
            world_rank=own.spawn_world_rank(server_args, tp_rank=tp_rank, pp_rank=pp_rank),
            dp_rank=own.resolve_spawn_dp_rank(dp_rank),
            gpu_id=gpu_id,
        ),
    )
    own.configure_scheduler_process(server_args, gpu_id)
    fake = FakeScheduler(server_args, port_args)
    pipe_writer.send(
        {
            "status": "ready",
            "max_total_num_tokens": CONTEXT_TOKENS,
            "max_req_input_len": CONTEXT_TOKENS,
            "startup_time": {},
            "hicache_object_layout": None,
        }
    )
    fake.run()


if __name__ == "__main__":
    launch_server(prepare_server_args(sys.argv[1:]), run_scheduler_process_func=run_scheduler_process)
