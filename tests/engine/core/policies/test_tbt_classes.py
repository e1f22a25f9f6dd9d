"""Who decodes in a step: on `LinearLatency` a step takes 1 ms per decoding request."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from observations import linear_context, observe, running_prefill, waiting

from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.policies.tbt_classes import without_those_who_can_wait
from pdmuxd.engine.core.queueing import DECODE_HEADROOM_TOKENS, form_prefill_batch
from pdmuxd.engine.core.types import Decision, DecodingRequest, EngineLimits, Mode, Observation, Reason

CONTEXT = linear_context()
TABLE = CONTEXT.table()
STRICT_S, RELAXED_S = 0.020, 0.200


def batch(strict: int, relaxed: int, *, waited_s: float = 0.0, now_s: float = 10.0) -> Observation:
    """So many of each target; the relaxed were last in a step `waited_s` ago, the first a little earlier."""
    decoding = [DecodingRequest(f"s{i}", STRICT_S, 100, now_s) for i in range(strict)]
    decoding += [
        DecodingRequest(f"r{i}", RELAXED_S, 1000, now_s - waited_s + i * 1e-6) for i in range(relaxed)
    ]
    bs = len(decoding)
    seen = observe(decode_bs=bs, tbt_target_s=STRICT_S if strict else RELAXED_S, now_s=now_s)
    return replace(seen, decoding=tuple(decoding), last_token_s=now_s)


def divided(obs: Observation) -> tuple[Observation, tuple[str, ...]]:
    return without_those_who_can_wait(obs, CONTEXT, TABLE, CONTEXT.guard)


def test_everybody_decodes_when_the_step_has_time_for_all() -> None:
    obs = batch(1, 10)
    assert divided(obs) == (obs, ())


def test_everybody_decodes_when_all_are_strict() -> None:
    obs = batch(0, 50)
    assert divided(obs) == (obs, ())


def with_queue(obs: Observation, new_tokens: int = 500) -> Observation:
    return replace(obs, waiting=(waiting(1, new_tokens),), waiting_count=1)


def test_as_many_relaxed_decode_as_the_step_has_time_for_when_they_are_too_many() -> None:
    part, sits_out = divided(with_queue(batch(2, 40)))
    assert part.decode.bs == 13  # of the 14 ms, less rounding
    assert part.decode.reused_tokens == 2 * 100 + (part.decode.bs - 2) * 1000
    assert len(sits_out) == 29


def test_who_has_waited_longest_decodes_first_when_some_sit_out() -> None:
    _, sits_out = divided(with_queue(batch(1, 40)))
    assert sits_out == tuple(f"r{i}" for i in range(12, 40))


def test_more_of_the_relaxed_decode_when_the_step_can_hold_no_prompt() -> None:
    alone = divided(batch(1, 40))[0].decode.bs
    assert alone == 18
    full = replace(with_queue(batch(1, 40)), limits=EngineLimits(max_decode_bs=41))
    assert divided(full)[0].decode.bs == alone
    unsure = without_those_who_can_wait(batch(1, 40), CONTEXT, TABLE, CONTEXT.guard, margin_ratio=1.25)[0]
    assert unsure.decode.bs == 16


def test_more_of_the_relaxed_sit_out_when_no_split_has_time_for_so_many() -> None:
    """Of the 13 of a step with prompt tokens, beside a prompt of layers."""
    obs = with_queue(batch(1, 40), new_tokens=9000)
    policy = build_policy("auto:nofuse", CONTEXT)
    decision, _ = policy.decide(obs, policy.initial_state())
    assert decision.mode is Mode.SPLIT
    assert decision.reason is Reason.BEST_FIT
    assert len(decision.sits_out) > len(divided(obs)[1])


def test_what_fits_the_widest_split_decodes_when_layers_are_between_two_launches() -> None:
    obs = replace(batch(1, 60), prefill=running_prefill(10_000, launched=8, done=8))
    part, _ = divided(obs)
    sms = TABLE.groups[TABLE.split_indices[-1]].decode_sms
    guard = CONTEXT.guard.ratio(sms, obs.prefill.shape, part.decode) if obs.prefill else 1.0
    assert CONTEXT.latency.decode_s(part.decode, sms) * guard <= STRICT_S
    assert part.decode.bs < divided(batch(1, 60))[0].decode.bs


def test_only_those_due_that_keep_the_strict_target_decode_when_the_others_have_another_step() -> None:
    """41 would take 41 ms; 18 of the 20 ms are decode's at most, and 14 beside prompts."""
    obs = batch(1, 40, waited_s=0.795 * RELAXED_S)
    assert divided(with_queue(obs))[0].decode.bs == 18
    assert divided(with_queue(batch(1, 40)))[0].decode.bs == 13


def test_whoever_would_be_late_decodes_when_the_step_has_no_time_for_them() -> None:
    part, sits_out = divided(batch(1, 40, waited_s=0.85 * RELAXED_S))
    assert sits_out == ()
    assert part.decode.bs == 41


def test_who_would_be_late_goes_before_who_is_due_first() -> None:
    """Of one second, ten are due since 50 ms and have 150; of 40 ms, ten are due in 18 ms and late in 26."""
    decoding = [DecodingRequest("s", STRICT_S, 100, 10.0)]
    decoding += [DecodingRequest(f"slow{i}", 1.0, 100, 9.15) for i in range(10)]
    decoding += [DecodingRequest(f"fast{i}", 0.04, 100, 9.986) for i in range(10)]
    seen = observe(decode_bs=21, tbt_target_s=STRICT_S, now_s=10.0)
    part, sits_out = divided(with_queue(replace(seen, decoding=tuple(decoding))))
    assert part.decode.bs == 18
    assert sits_out == tuple(f"slow{i}" for i in range(7, 10))


def test_only_what_the_group_in_force_has_time_for_decodes_when_layers_are_in_flight() -> None:
    """Decode has 20 of 132 SMs, and the guard is 1.25: a request takes 8.25 ms."""
    obs = replace(batch(1, 6), partition_id=1, prefill=running_prefill(10_000, launched=8, done=4))
    part, _ = divided(obs)
    assert part.decode.bs == 2


def test_a_decision_says_who_sits_out() -> None:
    obs = with_queue(batch(1, 40))
    policy = build_policy("auto", CONTEXT)
    decision, _ = policy.decide(obs, policy.initial_state())
    assert len(decision.sits_out) >= 28
    assert decision.mode in (Mode.FUSED, Mode.SPLIT)
    off = build_policy("auto:noclasses", CONTEXT)
    assert off.decide(obs, off.initial_state())[0].sits_out == ()


@given(relaxed=st.integers(1, 60), spare=st.integers(0, 5))
def test_who_sits_out_keeps_its_slot_and_its_kv_when_others_are_admitted(relaxed: int, spare: int) -> None:
    """Counted as free, their slots were given away, and no one got in until as many had ended."""
    queue = tuple(waiting(i, 10) for i in range(8))
    limits = EngineLimits(max_decode_bs=1 + relaxed + spare)
    obs = replace(batch(1, relaxed), waiting=queue, waiting_count=8, limits=limits)
    part, sits_out = divided(obs)
    assert part.sitting_out == len(sits_out)
    assert len(form_prefill_batch(part)) == spare
    kv_tokens = DECODE_HEADROOM_TOKENS * (1 + relaxed)
    assert form_prefill_batch(replace(part, kv_free_tokens=kv_tokens + 9)) == ()
    assert len(form_prefill_batch(replace(part, kv_free_tokens=kv_tokens + 10))) == min(1, spare)


@settings(max_examples=30, deadline=None)
@given(
    strict=st.integers(1, 6),
    relaxed=st.lists(st.sampled_from((0.04, 0.1, 0.2, 1.0)), min_size=1, max_size=60),
    has_queue=st.booleans(),
)
def test_nobody_waits_past_its_target_when_steps_take_what_is_predicted(
    strict: int, relaxed: list[float], has_queue: bool
) -> None:
    """Decided again and again: each step takes what its decode batch is predicted to take. Where the tokens
    that the targets ask for are more than the device can make, everybody still gets one in turn."""
    targets_s = {f"s{i}": STRICT_S for i in range(strict)} | {f"r{i}": t for i, t in enumerate(relaxed)}
    last_s = dict.fromkeys(targets_s, 0.0)
    worst_s = dict.fromkeys(targets_s, 0.0)
    load = sum(0.001 / target_s for target_s in targets_s.values())
    policy, now_s = build_policy("auto", CONTEXT), 0.0
    state = policy.initial_state()
    for _ in range(100):
        decoding = tuple(DecodingRequest(n, t, 100, last_s[n]) for n, t in targets_s.items())
        queue = (waiting(1, 500),) if has_queue else ()
        obs = replace(
            observe(decode_bs=len(decoding), tbt_target_s=STRICT_S, now_s=now_s, queue=queue),
            decoding=decoding,
        )
        decision, _ = policy.decide(obs, state)
        assert decision == policy.decide(obs, state)[0]
        now_s += 0.001 * (len(decoding) - len(decision.sits_out))
        for name in frozenset(targets_s).difference(decision.sits_out):
            worst_s[name] = max(worst_s[name], now_s - last_s[name])
            last_s[name] = now_s
    assert not any(n.startswith("s") for n in last_s if last_s[n] < now_s), "the strict are in every step"
    late = {name: worst_s[name] for name, target_s in targets_s.items() if worst_s[name] > target_s + 1e-9}
    if load <= 0.5:
        assert late == {}
    starved = [name for name, target_s in targets_s.items() if now_s - last_s[name] > target_s + 0.1]
    assert starved == []


def test_the_decision_names_only_requests_that_decode() -> None:
    obs = batch(1, 40)
    policy = build_policy("auto", CONTEXT)
    decision: Decision = policy.decide(obs, policy.initial_state())[0]
    assert set(decision.sits_out) <= {request.request_id for request in obs.decoding}
