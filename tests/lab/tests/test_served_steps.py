"""What is told of a served load's step records."""

import served_steps


def step(at_s, *, measured_ms=20.0, tokens=9000, ratio=1.5):
    return {
        "cell": "tools held/direct auto 50 11",
        "at": f"2026-11-28T20:00:{at_s:06.3f}Z",
        "mode": "split",
        "decode_sms": 16,
        "decode_bs": 4,
        "prefill_new_tokens": tokens,
        "predicted_ms": 20.0,
        "measured_ms": measured_ms,
        "guard_ratio": ratio,
    }


def test_more_requests_of_unlike_lengths_are_cut_into_more_pieces_than_there_are_sms():
    shares = [served_steps.second_waves(requests, "tools", 8, 132) for requests in (1, 4, 8)]
    assert shares[0] == 0.0
    assert 0.4 < shares[1] < 0.7
    assert shares[2] > 0.99
    assert served_steps.second_waves(4, "tools", 4, 132) == 0.0


def test_a_turn_is_told_when_decode_stood_still_in_it(capsys):
    served_steps.tell_standstills([step(1.0), step(1.02), step(1.07, tokens=12_000), step(1.09)])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("stood still 30 ms (gap 50) in tools held/direct auto 50 11")
    assert "12000" in line


def test_a_prompt_bounds_its_steps_once_it_was_seen(capsys):
    steps = [step(at, measured_ms=24.0) for at in range(4)] + [step(5, measured_ms=29.0, tokens=500)]
    served_steps.tell_splits(steps, margin=1.0)
    said = capsys.readouterr().out
    assert "bounded by the guard: 0.0% pass, it lies 21% above" in said
    assert "bounded by the prompt: 0.0% pass, it lies 11% above" in said
