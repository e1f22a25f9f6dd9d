"""What a policy learns from prefills that the device measured: one request, alone, on all SMs."""

import pytest
from engine_rig import Rig, make_engine_info, settings

from pdmuxd.engine.core.types import PrefillShape


def samples(rig):
    return rig.loop.state.policy_state.samples


def prefilled(rig, name, *, tokens, took_s, reused=0):
    """A prompt that the policy prefills at once, and that the device takes so long for."""
    rig.port.cache[name] = reused
    rig.arrive(name, tokens=tokens + reused, outputs=1)
    rig.turn()
    begun = [quantum.start for quantum in rig.loop.prefill.running.quanta]
    rig.device.finish(begun[0])
    rig.clock.now_s += took_s
    for _ in range(20):
        rig.device.finish_prefill()
        rig.turn()
        if not rig.loop.prefill.members():
            return


def test_a_prefill_of_one_request_alone_is_a_sample():
    rig = Rig("pla/muxwise")
    prefilled(rig, "a", tokens=4000, took_s=0.1)
    assert samples(rig).count == 1
    assert rig.records[0].outcome == "finished"


def test_a_prefill_beside_decode_is_no_sample():
    rig = Rig("pla/muxwise")
    rig.arrive("z", tokens=8, outputs=300)
    while not rig.port.running:
        rig.turn()
        rig.device.finish_prefill()
    before = samples(rig).count
    rig.arrive("a", tokens=4000, outputs=1)
    for _ in range(30):
        rig.turn()
        rig.device.finish_prefill()
    assert rig.launches("finish")[-1] == ("a",)
    assert samples(rig).count == before


def test_a_batch_of_several_requests_is_no_sample():
    rig = Rig("pla/muxwise")
    rig.link.inbox.append(settings(1, "pla/muxwise"))
    rig.arrive("a", tokens=100, outputs=1)
    rig.arrive("b", tokens=100, outputs=1)
    for _ in range(20):
        rig.turn(after_s=0.1)
        rig.device.finish_prefill()
    assert rig.launches("finish") == [("a", "b")]
    assert samples(rig).count == 0


def test_the_crossover_is_fitted_when_prompts_of_several_lengths_were_measured():
    rig = Rig("pla/muxwise")
    engine_info = rig.engine_info
    for number, (new, reused) in enumerate(
        [(600, 0), (2000, 0), (8000, 0), (900, 3000), (400, 9000), (5000, 2000), (12000, 0), (700, 700)]
    ):
        shape = PrefillShape.of([(new, reused)])
        took_s = engine_info.roofline.prefill_cost(shape, engine_info.device.total_sms).seconds
        prefilled(rig, f"r{number}", tokens=new, reused=reused, took_s=took_s)
    fit = rig.loop.state.policy_state.fit
    expected = engine_info.roofline.prefill_terms(4000, 1000)
    assert fit.compute_s(4000, 1000) == pytest.approx(expected.compute_s, rel=0.02)
    assert fit.memory_s(4000, 1000) == pytest.approx(expected.memory_s, rel=0.02)


def test_compute_follows_the_measured_time_and_kv_traffic_its_bytes():
    engine_info = make_engine_info()
    expected = engine_info.roofline.prefill_terms(2000, 500)
    shape = PrefillShape.of([(2000, 500)])
    alone_s = engine_info.roofline.prefill_cost(shape, engine_info.device.total_sms).seconds
    found = engine_info.prefill_sample(2000, 500, 1.5 * alone_s)
    assert found.compute_s == pytest.approx(1.5 * expected.compute_s)
    assert found.memory_s == expected.memory_s
    assert (found.new_tokens, found.reused_tokens) == (2000, 500)
