"""The real loop, stage, ledger, policy, meter and reporter around a fake scheduler and a fake device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fake_device import FakeClock, FakeStreams
from fake_scheduler import FINISH_ABORT, FakePort, FakeRequest

from pdmuxd.engine.core.partitions import PartitionTable, SmRules, even_steps
from pdmuxd.engine.core.policies.base import AnyPolicy, Stateless
from pdmuxd.engine.core.shapes import DeviceShape, Overheads, TensorParallel
from pdmuxd.engine.core.types import Decision, EngineLimits, Mode, Observation, Reason
from pdmuxd.engine.emulator.shapes import LLAMA_8B
from pdmuxd.engine.link.messages import EngineSettings, RequestRecord, TenantSlo
from pdmuxd.engine.loop.loop import EngineLoop
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.sglang.engine_info import EngineInfo
from pdmuxd.engine.sglang.policies import SglangPolicies
from pdmuxd.engine.sglang.reporting import Measurer, Reporter
from pdmuxd.engine.sglang.requests import Ledger

RULES = SmRules(total_sms=132)
IDLE = Decision(mode=Mode.IDLE, partition_id=0, reason=Reason.NOTHING_TO_DO)


def split(*, partition_id: int = 1, **fields: Any) -> Decision:
    return Decision(mode=Mode.SPLIT, partition_id=partition_id, reason=Reason.FIXED_SPLIT, **fields)


def fused(budget: int, **fields: Any) -> Decision:
    partition_id = even_steps(RULES).decode_only
    return Decision(
        mode=Mode.FUSED, partition_id=partition_id, reason=Reason.TOKEN_BUDGET, token_budget=budget, **fields
    )


def make_engine_info(**changes: Any) -> EngineInfo:
    """A model of four layers on an H200."""
    engine_info: dict[str, Any] = {
        "pid": 1,
        "model_name": "tiny",
        "model": replace(LLAMA_8B, name="tiny", layers=4),
        "model_hash": "abc",
        "device": DeviceShape(
            name="an H200",
            total_sms=RULES.total_sms,
            min_sms=RULES.min_sms,
            multiple_sms=RULES.multiple_sms,
            flops=7e14,
            bytes_per_s=4e12,
            bandwidth_curvature=4.5,
        ),
        "overheads": Overheads(
            graph_launch_s=0.0001, layer_launch_s=0.0004, host_step_s=0.0, layer_fixed_s=0.0, switch_s=0.0
        ),
        "tensor_parallel": TensorParallel(gpus=1),
        "table": even_steps(RULES),
        "limits": EngineLimits(),
        "kv_capacity_tokens": 100_000,
        "vocab_size": LLAMA_8B.vocab,
        "max_context_tokens": LLAMA_8B.max_context_tokens,
        "captured_decode_bs": (1, 2, 4),
        "captured_fused_tokens": (32, 64),
        "driver": "",
        "sglang_version": "0.5.23",
        "variant": "",
        "can_measure": True,
    }
    return EngineInfo(**engine_info | changes)


class Scripted(Stateless):
    """A policy that answers what the test wrote down, and IDLE after that."""

    name = "scripted"

    def __init__(self, policy_runtime: PolicyRuntime) -> None:
        self.context = policy_runtime.policy.context
        self.table: PartitionTable = policy_runtime.policy.table
        self.answers: deque[Decision] = deque()
        self.seen: list[Observation] = []

    def decide(self, obs: Observation, state: Any) -> tuple[Decision, Any]:
        self.seen.append(obs)
        return (self.answers.popleft() if self.answers else IDLE), state


@dataclass(eq=False)
class FakeLink:
    """The engine's end of a link, with the test at the other end."""

    dropped: int = 0
    inbox: deque[Any] = field(default_factory=deque)
    sent: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> bool:
        self.sent.append(message)
        return True

    post = send

    def receive(self) -> Any:
        message = self.inbox.popleft() if self.inbox else None
        if isinstance(message, Exception):
            raise message
        return message

    def of(self, kind: type) -> list[Any]:
        return [message for message in self.sent if isinstance(message, kind)]


def settings(version: int, policy: str = "muxwise", **fields: Any) -> EngineSettings:
    return EngineSettings(version=version, policy=policy, **{"tenants": ()} | fields)


def tenant_slo(name: str = "acme", **fields: Any) -> TenantSlo:
    values = {"ttft_fixed_s": 1.0, "ttft_per_1k_new_tokens_s": 1.0, "tbt_s": 0.05}
    return TenantSlo(**{"tenant": name, "attainment_ratio": 0.99, "slo_version": 1} | values | fields)


class Rig:
    """One rank. `policy`: of the registry; without one the test scripts the decisions."""

    def __init__(
        self,
        policy: str | None = None,
        *,
        engine_info: EngineInfo | None = None,
        measure: Measurer | None = None,
        first: bool = True,
        wire: deque[Any] | None = None,
        port: type[FakePort] = FakePort,
        link: Any = None,
    ) -> None:
        self.clock = FakeClock()
        self.engine_info = engine_info or make_engine_info()
        self.device = FakeStreams(self.engine_info.table, self.clock)
        self.port = port(self.device, first=first, wire=wire)
        self.link = link or FakeLink()
        policy_runtime = PolicyRuntime(SglangPolicies(self.engine_info), policy or "muxwise")
        self.script = Scripted(policy_runtime)
        if policy is None:
            policy_runtime.policy = self.script
        reporter = Reporter(self.link if first else None, measure)
        self.ledger = Ledger(self.port.reused_tokens, reporter.send_request, lambda request: request.is_whole)
        self.port.on_release = lambda request: self.ledger.released(request, self.loop.now_s())
        self.loop = EngineLoop(
            port=self.port,
            streams=self.device,
            policy_runtime=policy_runtime,
            ledger=self.ledger,
            reporter=reporter,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    @property
    def policy(self) -> AnyPolicy:
        return self.loop.policy_runtime.policy

    @property
    def records(self) -> list[RequestRecord]:
        return self.link.of(RequestRecord)

    def arrive(
        self, name: str, *, tokens: int = 10, outputs: int = 8, tenant: str = "acme", **fields: Any
    ) -> FakeRequest:
        request = FakeRequest.make(name, tokens, outputs, tenant, **fields)
        self.port.inbox.append(lambda: self.port.waiting.append(request))
        return request

    def decoding(self, *names: str, outputs: int = 8) -> list[FakeRequest]:
        """Requests that decode, admitted and prefilled by scripted decisions; the log is empty after."""
        made = [self.arrive(name, outputs=outputs) for name in names]
        self.turn(split(partition_id=0, admit=names, prefill_layers=self.port.layers))
        self.device.finish_prefill()
        self.turn()
        self.port.log.clear()
        return made

    def abort(self, request: FakeRequest) -> None:
        """As SGLang does: out of the queue at once; a prompt in chunks when the next batch is formed; who is
        in a batch ends when its result is read."""

        def carry_out() -> None:
            if request in self.port.waiting:
                self.port.waiting = [other for other in self.port.waiting if other is not request]
                self.ledger.released(request, self.loop.now_s())
            elif request is self.port.chunked_request:
                self.port.aborted_chunked = request
            else:
                request.to_finish = FINISH_ABORT()

        self.port.inbox.append(carry_out)

    def turn(self, decision: Decision | None = None, *, after_s: float = 0.01) -> Observation | None:
        """One safe point, `after_s` after the last; what the scripted policy saw there."""
        self.clock.now_s += after_s
        if decision is not None:
            self.script.answers.append(decision)
        seen = len(self.script.seen)
        self.loop.turn()
        return self.script.seen[-1] if len(self.script.seen) > seen else None

    def turns(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.turn(decision)

    def launches(self, kind: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.port.log if entry[0] == kind]
