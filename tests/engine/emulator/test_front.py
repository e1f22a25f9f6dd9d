"""The process behind the scheduler, and what the scheduler's thread needs for a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engines import PROFILE, Memory, engine, request, run_until_idle

from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.front import Delivery
from pdmuxd.engine.emulator.launches import HostTurn
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest

TOKEN_S, STEP_S = 100e-6, 500e-6


def served(profile: Profile, requests: int = 8) -> tuple[EmulatedEngine, list[EmulatedRequest], Memory]:
    """Chats that come while another request has the device, to their ends."""
    memory = Memory()
    made = engine("chunked:1024", profile=profile, observer=memory)
    chats = [request(str(number), input_tokens=100, output_tokens=20) for number in range(requests)]
    made.submit(request("before", input_tokens=100, output_tokens=1), 0.0)
    for chat in chats:
        made.submit(chat, 0.0)
    run_until_idle(made)
    del memory.tokens["before"], memory.ended[0]
    return made, chats, memory


def test_tokens_are_at_the_client_when_their_step_is_read_unless_the_profile_has_a_delivery() -> None:
    made, chats, memory = served(PROFILE)
    for chat in chats:
        assert made.token_times(chat).tolist() == made.step_times(chat).tolist()
    assert {at_s for _, _, at_s in memory.ended} == {chats[0].end_s}


def test_a_step_s_tokens_come_one_after_another_the_first_ones_as_well() -> None:
    made, chats, memory = served(replace(PROFILE, delivery=Delivery(token_s=TOKEN_S, step_s=STEP_S)))
    late_s = np.array([made.token_times(chat) - made.step_times(chat) for chat in chats])
    assert late_s.shape == (8, 20)
    for of_step in late_s.T:
        assert sorted(of_step) == pytest.approx([STEP_S + TOKEN_S * (1 + place) for place in range(8)])
    assert memory.tokens == {chat.request_id: 20 for chat in chats}
    ends_s = {name: at_s for name, _, at_s in memory.ended}
    for chat in chats:
        assert chat.end_s is not None
        assert ends_s[chat.request_id] >= made.token_times(chat)[-1] > chat.end_s
    assert [phase for _, phase, _ in memory.ended] == ["finished"] * 8


def test_what_is_not_handed_out_before_the_next_step_waits_for_it() -> None:
    made, chats, _ = served(replace(PROFILE, delivery=Delivery(token_s=0.01)))
    late_s = np.array([made.token_times(chat) - made.step_times(chat) for chat in chats])
    assert late_s[:, -1].min() > 10 * late_s[:, 0].max() > 0.0


def test_a_request_that_comes_keeps_the_tokens_of_others_waiting() -> None:
    def last_s(delivery: Delivery) -> float:
        made = engine("chunked:1024", profile=replace(PROFILE, delivery=delivery))
        chat = request("0", input_tokens=100, output_tokens=2)
        made.submit(chat, 0.0)
        run_until_idle(made)
        return float(made.token_times(chat)[0])

    assert last_s(Delivery(request_s=0.5)) == pytest.approx(0.5)
    assert last_s(Delivery()) < 0.1


def test_good_by_client_is_not_good_by_steps() -> None:
    """A target that each step keeps, and the client's gaps do not: the process reads requests meanwhile."""
    made = engine("chunked:1024", profile=replace(PROFILE, delivery=Delivery(request_s=0.005)))
    chat = request("0", input_tokens=100, output_tokens=100)
    made.submit(chat, 0.0)
    for number in range(1, 5):
        made.submit(request(str(number), input_tokens=10, output_tokens=2), 0.2)
    run_until_idle(made)
    by_client, by_steps = np.diff(made.token_times(chat)).max(), np.diff(made.step_times(chat)).max()
    assert by_client > by_steps + 0.01


def test_the_process_stands_still_by_the_device_s_clock() -> None:
    delivery = Delivery(token_s=1e-6)
    made, chats, _ = served(
        replace(PROFILE, delivery=delivery, noise=DeviceNoise(stall_s=0.03, stall_every_s=0.05))
    )
    late_s = np.concatenate([made.token_times(chat) - made.step_times(chat) for chat in chats])
    assert late_s.max() == pytest.approx(0.03, abs=1e-4)


def test_a_request_that_is_aborted_ends_behind_its_tokens() -> None:
    memory = Memory()
    profile = replace(PROFILE, delivery=Delivery(token_s=0.05))
    made = engine("chunked:1024", profile=profile, observer=memory)
    made.submit(request("0", input_tokens=100, output_tokens=1000), 0.0)
    made.advance(0.3)
    tokens = memory.tokens["0"]
    assert made.abort("0", 0.3)
    run_until_idle(made)
    assert memory.tokens["0"] > tokens
    assert [(name, phase) for name, phase, _ in memory.ended] == [("0", "aborted")]
    made.check_integrity()


@pytest.mark.parametrize(
    "host", [HostTurn(form_row_s=2e-3), HostTurn(read_row_s=2e-3), HostTurn(launch_s=16e-3)]
)
def test_the_device_waits_for_a_host_that_needs_longer_than_a_step(host: HostTurn) -> None:
    gaps_s = _gaps_s(host)
    assert np.median(gaps_s) == pytest.approx(16e-3, rel=0.05), "eight rows of 2 ms"
    assert np.median(_gaps_s(HostTurn())) < 8e-3


def test_a_host_that_is_done_before_the_device_costs_nothing() -> None:
    quick = HostTurn(form_row_s=0.1e-3, read_row_s=0.1e-3, launch_s=1e-3)
    assert np.median(_gaps_s(quick)) == pytest.approx(np.median(_gaps_s(HostTurn())), rel=0.01)


def test_requests_that_begin_and_end_cost_the_host_as_well() -> None:
    def first_s(host: HostTurn) -> float:
        return float(times_s(host)[0])

    def times_s(host: HostTurn) -> np.ndarray:
        made, chat = engine("chunked:1024", profile=replace(PROFILE, host=host)), request("0", 100, 20)
        made.submit(chat, 0.0)
        run_until_idle(made)
        return made.step_times(chat)

    assert first_s(HostTurn(form_request_s=1e-3)) == pytest.approx(first_s(HostTurn()) + 1e-3)
    assert first_s(HostTurn(form_fused_s=5e-3)) == pytest.approx(first_s(HostTurn()) + 5e-3)
    later_s = times_s(HostTurn(end_request_s=1e-3)) - times_s(HostTurn())
    assert later_s == pytest.approx([0.0] * 19 + [1e-3])


@pytest.mark.parametrize("name", ["h100-llama-8b-served", "h200-llama-8b-served"])
def test_the_served_profiles_have_a_host_and_a_delivery_and_others_have_none(name: str) -> None:
    profile = load_profile(name)
    # Chat at 150 requests/s: 164 decode, 3.6 begin and as many end (docs/measurements/h100.md): 19.6 ms.
    host = profile.host
    turn_s = host.form_s(rows=164, begun=[True] * 4) + host.launch_s + host.read_s(rows=164, ended=4)
    assert turn_s == pytest.approx(19.6e-3, rel=0.1)
    assert profile.delivery is not None
    assert profile.noise.stall_ratio == 0.001
    default = load_profile("h200-llama-8b-measured")
    assert (default.host, default.delivery, default.noise) == (HostTurn(), None, DeviceNoise())


def _gaps_s(host: HostTurn) -> np.ndarray:
    made, chats, _ = served(replace(PROFILE, host=host))
    return np.diff(made.step_times(chats[0]))[5:-2]
