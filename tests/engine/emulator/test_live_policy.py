"""A policy, its splits and its shadow change while the engine serves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.link.messages import EngineSettings, IterationRecord, ShadowCounts, TenantSlo

TENANT = TenantSlo(
    tenant="chat",
    ttft_fixed_s=0.5,
    ttft_per_1k_new_tokens_s=0.5,
    tbt_s=0.02,
    attainment_ratio=0.99,
    slo_version=1,
)


def settings(version: int, policy: str, **changes: object) -> EngineSettings:
    return EngineSettings(version=version, policy=policy, tenants=(TENANT,), **changes)  # type: ignore[arg-type]


def test_steps_of_a_fixed_size_serve_while_predictions_prove_wrong() -> None:
    serving = Serving("auto:nosplit")  # what splits take more than predicted is foreseen after a few
    assert serving.engine.apply(settings(1, "auto:nosplit")).error is None
    list(serving.go_on(1.0))
    assert serving.steps_of("predictions_wrong") == []
    serving.engine.throttle(3.0)
    list(serving.go_on(3.0))
    assert set(serving.steps_of("predictions_wrong")) == {FIXED_STEP_TOKENS}


class Serving:
    """A request every 50 ms, or as often as it is told, for as long as it is asked to go on."""

    def __init__(self, policy: str, *, every_s: float = 0.05) -> None:
        self.every_s = every_s
        self.engine = EmulatedEngine(
            profile=load_profile("h200-llama-8b"), policy=policy, step_records=True, keep_step_log=False
        )
        self.requests: list[EmulatedRequest] = []
        self.records: list[IterationRecord] = []

    def go_on(self, seconds: float) -> Iterator[tuple[int, int]]:
        """The splits that decode and prefill shared meanwhile."""
        end_s = self.engine.now_s + seconds
        while self.engine.now_s < end_s:
            number = len(self.requests)
            request = EmulatedRequest(
                request_id=str(number),
                tenant="chat",
                arrival_s=self.engine.now_s,
                input_tokens=4000 if number % 3 else 400,
                output_tokens=60,
            )
            self.requests.append(request)
            self.engine.submit(request, self.engine.now_s)
            self.engine.advance(self.engine.now_s + self.every_s)
        found = self.engine.drain_records()
        self.records += found
        for record in found:
            if record.prefill_sms and record.decode_sms and record.mode == "split":
                yield record.prefill_sms, record.decode_sms

    def steps_of(self, reason: str) -> list[int]:
        """The tokens of such fused steps."""
        return [
            one.prefill_new_tokens + one.decode_bs
            for one in self.records
            if one.reason == reason and one.mode == "fused" and one.prefill_new_tokens
        ]

    def drain(self) -> None:
        self.engine.advance(self.engine.now_s + 60.0)
        assert {one.phase for one in self.requests} == {Phase.FINISHED}
        self.engine.check_integrity()

    def shadow(self) -> ShadowCounts:
        found = self.engine.shadow_counts()
        assert found is not None
        return found


def test_other_splits_are_used_when_a_table_is_put_in_force() -> None:
    serving = Serving("muxwise")
    assert serving.engine.apply(settings(1, "muxwise")).error is None
    before = set(serving.go_on(2.0))
    assert before - {(72, 60)}, "the table's own splits"

    assert serving.engine.apply(settings(2, "muxwise", partitions=((72, 60),))).error is None
    set(serving.go_on(0.5))
    assert set(serving.go_on(2.0)) == {(72, 60)}
    serving.drain()


def test_a_table_is_refused_whole_when_the_device_cannot_make_it() -> None:
    serving = Serving("muxwise")
    ack = serving.engine.apply(settings(3, "auto", partitions=((100, 31),)))
    assert ack.error is not None
    assert "100,31 is not possible on 132 SMs" in ack.error
    assert (serving.engine.counters().policy, serving.engine.settings_version) == ("muxwise", 0)


def test_a_shadow_of_itself_never_differs() -> None:
    # Past capacity a prompt is under way nearly always, and a shadow is asked only where none is.
    serving = Serving("auto", every_s=0.1)
    serving.engine.apply(settings(1, "auto", shadow="auto"))
    set(serving.go_on(5.0))
    found = serving.shadow()
    assert found.decisions > 20
    assert found.same == found.decisions
    assert found.prefill_sms == found.shadow_prefill_sms


def test_a_shadow_changes_nothing_and_its_difference_is_counted() -> None:
    plain, shadowed = Serving("auto"), Serving("auto")
    plain.engine.apply(settings(1, "auto"))
    shadowed.engine.apply(settings(1, "auto", shadow="static:72,60"))
    assert list(plain.go_on(5.0)) == list(shadowed.go_on(5.0))
    found = shadowed.shadow()
    assert (found.policy, found.same + found.other_mode + found.other_split + found.other_requests) == (
        "static:72,60",
        found.decisions,
    )
    assert found.same < found.decisions
    assert found.shadow_prefill_sms < found.prefill_sms
    for one in (plain, shadowed):
        one.drain()


@pytest.mark.parametrize(
    "policy", ["muxwise", "drift", "duet", "pla", "chunked:512", "prefill-first", "upstream"]
)
def test_any_policy_can_be_the_shadow_of_any_other(policy: str) -> None:
    serving = Serving("auto")
    serving.engine.apply(settings(1, "auto", shadow=policy))
    set(serving.go_on(1.0))
    serving.engine.apply(settings(2, policy, shadow="auto"))
    set(serving.go_on(1.0))
    assert serving.shadow().policy == "auto"
    assert serving.shadow().decisions > 0
    serving.engine.apply(settings(3, policy))
    assert serving.engine.shadow_counts() is None
    serving.drain()
