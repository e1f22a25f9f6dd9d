"""The ends of logs that go into a failed test's report."""

import process_logs
import pytest


@pytest.fixture
def watched(monkeypatch, tmp_path):
    monkeypatch.setattr(process_logs, "_watched", {})
    return tmp_path / "daemon.log"


def test_the_last_lines_are_told_when_a_log_is_long(watched):
    watched.write_text("".join(f"line {number}\n" for number in range(100_000)))
    process_logs.watch(watched, lambda: True)
    ((title, text),) = process_logs.ends()
    assert str(watched) in title
    assert text.splitlines() == [f"line {number}" for number in range(100_000 - 60, 100_000)]


def test_a_report_stays_readable_when_lines_are_long(watched):
    watched.write_bytes(b"\xff" * 2**20)
    process_logs.watch(watched, lambda: True)
    ((_, text),) = process_logs.ends()
    assert len(text) == process_logs.MOST_BYTES


def test_a_log_is_left_out_when_its_process_ended_in_an_earlier_test(watched):
    watched.write_text("there")
    process_logs.watch(watched, lambda: False)
    process_logs.watch(watched.with_name("never-made.log"), lambda: True)
    assert [text for _, text in process_logs.ends()] == ["there"]
    process_logs.forget_ended()
    assert process_logs.ends() == []
