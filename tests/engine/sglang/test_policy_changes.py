"""Settings while serving: what changes at once, what waits for the prefill under way, what is refused."""

import logging

import msgspec
import pytest
from engine_rig import Rig, fused, make_engine_info, settings, split, tenant_slo
from observations import took

from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.types import DecodeShape, Mode, PrefillMode, PrefillShape
from pdmuxd.engine.link.messages import Ack, EngineStats
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.loop.policy_runtime import OVERTAKING_S
from pdmuxd.engine.sglang.reporting import LISTEN_BUSY_S


def acked(rig, *messages):
    """What the engine answers to messages that come before its next turn."""
    rig.link.inbox.extend(messages)
    before = len(rig.link.of(Ack))
    rig.turn(after_s=1.01 * LISTEN_BUSY_S)
    return rig.link.of(Ack)[before:]


def test_a_policy_is_in_force_at_once_when_no_prefill_is_under_way():
    rig = Rig("muxwise")
    assert acked(rig, settings(1, "chunked:256")) == [Ack(version=1)]
    assert rig.policy.name == "chunked:256"


def test_a_measured_delivery_is_left_of_a_target_from_the_next_step_on():
    rig = Rig("muxwise")
    assert rig.policy.context.planned_tbt_s(0.050) == pytest.approx(0.048)
    told = msgspec.structs.replace(settings(1, "muxwise"), delivery_s=0.008)
    assert acked(rig, told) == [Ack(version=1)]
    assert rig.policy.context.planned_tbt_s(0.050) == pytest.approx(0.042)


def asked_for(rig, policy, decision=None):
    """Another policy comes; what the one in force saw in that turn."""
    rig.link.inbox.append(settings(1, policy))
    return rig.turn(decision, after_s=1.01 * LISTEN_BUSY_S)


def test_a_policy_waits_for_the_prefill_and_nothing_is_begun_meanwhile():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn(split(admit=("a",), decode_steps=1, prefill_layers=4))
    rig.arrive("b")
    seen = asked_for(rig, "chunked:256", split(admit=("b",), decode_steps=1))
    assert (seen.settings_version, [entry.request_id for entry in seen.waiting]) == (1, ["b"])
    assert rig.policy.name == "scripted"
    rig.device.finish_prefill()
    rig.turn()
    assert rig.policy.name == "chunked:256"
    assert rig.launches("fused")[-1] == (256, "b", "z", "a")


def test_urgent_requests_overtake_the_prefill_that_a_policy_waits_for_for_a_while():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn(split(admit=("a",), decode_steps=1, prefill_layers=1))
    rig.arrive("b")
    asked_for(rig, "chunked:256", split(admit=("b",), preempt=True, decode_steps=1, prefill_layers=4))
    assert rig.launches("layers")[-1][1:] == ("b",)
    rig.device.finish_prefill()
    rig.arrive("c")
    seen = rig.turn(split(admit=("c",), decode_steps=1, prefill_layers=4))
    assert [entry.request_id for entry in seen.waiting] == ["c"]
    assert rig.launches("layers")[-1][1:] == ("c",), "before the one that would go on"
    rig.device.finish_prefill()
    rig.arrive("d")
    seen = rig.turn(split(resume=True, decode_steps=1, prefill_layers=3), after_s=1.01 * OVERTAKING_S)
    assert (seen.waiting, seen.waiting_count) == ((), 0)
    rig.device.finish_prefill()
    rig.turn()
    assert rig.policy.name == "chunked:256"


def test_prompts_that_fit_whole_go_with_the_last_chunk_when_a_policy_waits_for_it():
    rig = Rig()
    rig.arrive("a", tokens=40)
    rig.turn(fused(32, admit=("a",)))
    for name, tokens in (("b", 10), ("c", 15), ("d", 1)):
        rig.arrive(name, tokens=tokens)
    asked_for(rig, "static:96,36", fused(32, admit=("b", "c", "d")))
    assert rig.launches("fused")[-1] == (32, "a", "b"), "the chunks of c would be under way after those of a"
    rig.turn()
    assert rig.policy.name == "static:96,36"


def test_a_policy_waits_for_the_chunks_under_way():
    rig = Rig("chunked:16")
    rig.arrive("a", tokens=40)
    rig.turn()
    rig.link.inbox.append(settings(1, "static:96,36"))
    rig.turn(after_s=1.01 * LISTEN_BUSY_S)
    assert rig.policy.name == "chunked:16"
    rig.turn()
    rig.turn()
    assert rig.policy.name == "static:96,36"
    assert rig.launches("fused") == [(16, "a")] * 3


def test_targets_are_in_force_at_once_when_they_change():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("w", tokens=2000)
    rig.turn()
    looked_up = list(rig.port.looked_up)
    rig.link.inbox.append(
        settings(1, tenants=(tenant_slo(tbt_s=0.02, ttft_per_1k_new_tokens_s=3.0, slo_version=9),))
    )
    seen = rig.turn(split(decode_steps=1))
    assert seen.tbt_target_s == 0.02
    (entry,) = seen.waiting
    assert entry.deadline_s == pytest.approx(entry.arrival_s + 1.0 + 3.0 * 2.0)
    assert rig.ledger.get("w").slo_version == 9
    assert rig.port.looked_up == looked_up, "the ranks' prefix caches would differ"


def test_steps_are_planned_for_the_floor_when_a_target_costs_the_others_too_much():
    rig = Rig()
    rig.decoding("z", outputs=100)
    rig.arrive("w", tokens=2000)
    rig.turn()
    for version, floor_s, planned_s in ((1, 0.08, 0.08), (2, 0.01, 0.02), (3, None, 0.02)):
        rig.link.inbox.append(settings(version, tenants=(tenant_slo(tbt_s=0.02, tbt_floor_s=floor_s),)))
        seen = rig.turn(split(decode_steps=1), after_s=1.01 * LISTEN_BUSY_S)
        assert seen.tbt_target_s == planned_s
        assert [entry.tbt_target_s for entry in seen.waiting] == [planned_s]
        assert rig.ledger.get("z").tbt_target_s == 0.02, "its gaps are judged by its own"


def test_settings_are_refused_when_a_floor_is_no_target():
    rig = Rig()
    rig.link.inbox.append(settings(1, tenants=(tenant_slo(tbt_s=0.02, tbt_floor_s=float("nan")),)))
    rig.turn()
    assert "tbt_s is nan; allowed are 0.001 to 10" in rig.link.of(Ack)[-1].error


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (settings(4), "version 5 is already in force"),
        (settings(6, "nonsense"), "unknown policy 'nonsense'"),
        (settings(6, "chunked:5"), "token budget from 16"),
        (settings(6, "static:101,31"), "101,31"),
        (
            settings(6, "static:88,44"),
            "policy static:88,44 needs SM split 88,44, made only when the engine starts: set "
            'engine.sglang.partitions to "112,20;96,36;88,44;80,52;64,68;48,84;32,100" and start again',
        ),
        (settings(6, "duet"), "policy duet needs SM split 104,28 and 7 more, made only when"),
        (settings(6, tenants=(tenant_slo("acme", tbt_s=-1.0),)), "tenant acme"),
    ],
)
def test_settings_change_nothing_when_they_are_refused(message, says):
    rig = Rig("chunked:256")
    acked(rig, settings(5, "chunked:256", tenants=(tenant_slo(tbt_s=0.03),)))
    (ack,) = acked(rig, message)
    assert ack.version == message.version
    assert says in ack.error
    rig.arrive("a")
    rig.turn()
    policy_runtime = rig.loop.policy_runtime
    assert (policy_runtime.settings_version, policy_runtime.policy.name, policy_runtime.is_changing) == (
        5,
        "chunked:256",
        False,
    )
    assert rig.ledger.get("a").tbt_target_s == 0.03


def test_settings_are_acknowledged_again_when_their_version_comes_again():
    rig = Rig("chunked:256")
    first, second = acked(rig, settings(5, "chunked:256"), settings(5, "chunked:256"))
    assert first == second == Ack(version=5)


# --- a model without layer-wise prefill


def unsplit():
    return make_engine_info(unsplit="SGLang has no layer-wise prefill for it")


@pytest.mark.parametrize(
    ("asked", "in_force"),
    [
        ("auto", "auto:nosplit"),
        ("auto:fcfs+noclasses", "auto:nosplit+fcfs+noclasses"),
        ("static:96,36", "auto:nosplit+fcfs+noclasses+nopreempt"),
        ("slack/muxwise", "slack/auto:nosplit+fcfs+noclasses+nopreempt"),
        ("slack/chunked:256", "slack/chunked:256"),
        ("pla/chunked:256", "pla/chunked:256"),
        ("auto:nosplit", "auto:nosplit"),
        ("chunked:256", "chunked:256"),
        ("prefill-first", "prefill-first"),
    ],
)
def test_the_asked_order_is_in_force_without_splits_when_the_model_cannot_be_split(asked, in_force, caplog):
    rig = Rig(asked, engine_info=unsplit())
    rig.turn(after_s=0.2)
    assert rig.link.of(EngineStats)[-1].policy == in_force
    warned = [record.getMessage() for record in caplog.records if "layers" in record.getMessage()]
    if asked == in_force:
        assert warned == []
    else:
        (line,) = warned
        assert "tiny is not prefilled by layers (SGLang has no layer-wise prefill for it)" in line
        assert f"policy {asked} " in line
        assert f"{in_force} is in force" in line


def test_a_policy_change_is_acknowledged_and_fused_when_the_model_cannot_be_split(caplog):
    rig = Rig("chunked:256", engine_info=unsplit())
    assert acked(rig, settings(1, "muxwise")) == [Ack(version=1)]
    assert acked(rig, settings(2, "muxwise")) == [Ack(version=2)]
    assert rig.policy.name == "auto:nosplit+fcfs+noclasses+nopreempt"
    assert len(caplog.records) == 1
    rig.arrive("a", tokens=600, outputs=2)
    for _ in range(4):
        rig.turn()
    assert sum(tokens for tokens, *_ in rig.launches("fused")) >= 600
    assert rig.launches("layers") == []
    assert len(rig.records) == 1


def launched_behind_a_flood(policy):
    rig = Rig(policy, engine_info=unsplit())
    batch, chat = tenant_slo("batch", ttft_fixed_s=60.0), tenant_slo("chat", ttft_fixed_s=0.5)
    acked(rig, settings(1, policy, tenants=(batch, chat)))
    for number in range(6):
        rig.arrive(f"flood-{number}", tokens=8000, tenant="batch")
    rig.turn()
    rig.arrive("urgent", tokens=40, tenant="chat")
    rig.turn()
    rig.turn()
    return [names for _, *names in rig.launches("fused")]


def test_urgent_requests_go_before_a_flood_when_the_model_cannot_be_split():
    assert "urgent" in launched_behind_a_flood("auto")[1]
    assert not any("urgent" in names for names in launched_behind_a_flood("chunked:512"))


def test_no_latency_on_a_split_is_asked_for_when_the_model_cannot_be_split():
    policy = Rig("auto", engine_info=unsplit()).policy
    assert policy.table.splits == ()
    assert Rig("auto").policy.table.splits != ()


def test_an_unknown_policy_is_refused_when_the_model_cannot_be_split():
    with pytest.raises(PolicyError):
        Rig("nonsense", engine_info=unsplit())


def test_a_prefill_is_split_when_the_model_can_be():
    rig = Rig("static:96,36")
    rig.arrive("a", tokens=4000)
    rig.turn()
    (turn,) = rig.port.turns
    assert turn.decision.mode is Mode.SPLIT
    assert rig.loop.prefill.view(rig.loop.prefill.running, in_flight=None).mode is PrefillMode.LAYERWISE


# --- prefill graphs, which SGLang has none of


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_one_line_says_so_when_the_policy_wants_prefill_graphs(caplog):
    rig = Rig("pla/muxwise")
    for version, ratio in enumerate((1.2, 1.3, 1.4), start=1):
        acked(rig, settings(version, "pla/muxwise", predictors=predictors(7, default_ratio=ratio)))
    (line,) = warnings(caplog)
    assert line.startswith("pdmuxd: policy pla/muxwise: SGLang captures no prefills")
    rig.arrive("a", tokens=100)
    rig.turn(after_s=1.5)
    decision = rig.port.turns[-1].decision
    assert decision.admit == ("a",)
    assert decision.prefill_graph is None


@pytest.mark.parametrize("policy", ["pla+nograph/muxwise", "muxwise", "auto"])
def test_nothing_is_said_of_prefill_graphs_when_the_policy_wants_none(policy, caplog):
    Rig(policy)
    assert warnings(caplog) == []


def predictors(profile_id, *, default_ratio=1.2, cells=()):
    return Predictors(
        profile_id=profile_id,
        profile="measured",
        provenance="measured: here",
        solo_run=(),
        guard_default_ratio=default_ratio,
        guard_cells=cells,
    )


def learn_violation(rig, ratio):
    """A decode step beside a prefill took `ratio` times its solo prediction."""
    decode = DecodeShape(bs=8, reused_tokens=8000)
    feedback = took(
        Mode.SPLIT, partition_id=1, new_tokens=4096, decode=decode, predicted_s=0.01, measured_s=0.01 * ratio
    )
    rig.loop.policy_runtime.learn(feedback)


def guard_ratio(rig):
    decode_sms = rig.policy.table.groups[1].decode_sms
    guard = rig.loop.state.policy_state.guard
    return guard.ratio(decode_sms, PrefillShape.of([(4096, 0)]), DecodeShape(bs=8, reused_tokens=8000))


def test_predictors_are_believed_at_once_though_a_prefill_is_under_way():
    rig = Rig("muxwise")
    rig.decoding("z", outputs=100)
    rig.arrive("a")
    rig.turn()
    assert acked(rig, settings(1, "muxwise", predictors=predictors(7, default_ratio=1.7))) == [Ack(version=1)]
    assert guard_ratio(rig) == 1.7
    assert not rig.loop.policy_runtime.is_changing


def test_what_was_learned_here_stays_when_the_profile_in_force_is_refined():
    rig = Rig("muxwise")
    acked(rig, settings(1, "muxwise", predictors=predictors(7)))
    learn_violation(rig, 1.8)
    assert guard_ratio(rig) == pytest.approx(1.8)
    acked(rig, settings(2, "muxwise", predictors=predictors(7, default_ratio=1.25)))
    assert guard_ratio(rig) == pytest.approx(1.8)


def test_what_was_learned_here_is_forgotten_when_another_profile_comes():
    rig = Rig("muxwise")
    acked(rig, settings(1, "muxwise", predictors=predictors(7)))
    learn_violation(rig, 1.8)
    acked(rig, settings(2, "muxwise", predictors=predictors(8)))
    assert guard_ratio(rig) == 1.2
