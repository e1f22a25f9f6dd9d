from __future__ import annotations

from datetime import timedelta

import scenes

from pdmuxd.tui.state.lag import INTERVAL_S, SLOWEST_S, WINDOW_S, Delay, FramePacer


def at(seconds):
    return scenes.NOW + timedelta(seconds=seconds)


def test_nothing_lags_when_two_clocks_only_disagree():
    delay = Delay()
    for second in range(10):
        delay.event(at(second), second - 5000.0)
        assert delay.behind_s == 0.0


def test_the_delay_is_that_against_the_fastest_when_events_come_late():
    delay = Delay()
    delay.event(at(0), 100.0)
    delay.event(at(1), 102.5)
    assert abs(delay.behind_s - 1.5) < 1e-6
    delay.event(at(3), 103.0)
    assert delay.behind_s < 1e-6


def test_the_offset_is_taken_anew_when_the_fastest_is_long_ago():
    delay = Delay()
    delay.event(at(0), 0.0)
    for second in range(1, int(WINDOW_S) + 3):
        delay.event(at(second), second + 0.4)
    assert delay.behind_s < 1e-6


def test_no_frame_is_left_out_when_every_tick_is_in_time():
    pacer = FramePacer()
    assert all(pacer.tick(number * INTERVAL_S) for number in range(100))
    assert (pacer.painted, pacer.dropped) == (100, 0)


def test_frames_are_left_out_and_fewer_are_painted_when_ticks_come_late():
    pacer = FramePacer()
    now_s = 0.0
    for _ in range(20):
        pacer.tick(now_s)
        now_s += 3 * INTERVAL_S
    assert pacer.interval_s == SLOWEST_S
    assert pacer.painted < 10
    # Two of three ticks never came, and most that came did not paint.
    assert pacer.painted + pacer.dropped == 20 + 19 * 2


def test_all_frames_are_painted_again_when_the_machine_is_free_again():
    pacer = FramePacer()
    for number in range(10):
        pacer.tick(number * 0.5)
    painted = [pacer.tick(5.0 + number * INTERVAL_S) for number in range(200)]
    assert all(painted[-50:])
    assert pacer.late_s < 1e-6
