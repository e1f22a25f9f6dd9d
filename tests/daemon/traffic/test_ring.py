"""Recent traffic on disk: bounded, without text, and whatever happens to the disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from telemetry_feeds import request_record

from pdmuxd.daemon.traffic.prefixes import BLOCK_BYTES, MOST_BLOCKS, PrefixHasher
from pdmuxd.daemon.traffic.ring import TrafficRing


def fill(ring: TrafficRing, count: int, *, start: int = 0, prefixes: tuple[int, ...] = ()) -> None:
    for number in range(start, start + count):
        record = request_record(request_id=str(number))
        ring.on_ended(record, 1000.0 + number, (4000, prefixes), 2000.0 + number)


def test_what_was_told_is_read_again_when_another_daemon_starts(tmp_path: Path) -> None:
    ring = TrafficRing(tmp_path, max_bytes=1 << 20)
    fill(ring, 10, prefixes=(3, 4))
    assert len(ring.read(since_s=0.0, limit=100)) == 10, "also what is not written yet"
    ring.write()
    found = TrafficRing(tmp_path, max_bytes=1 << 20).read(since_s=1004.0, limit=3)
    assert [one.at_s for one in found] == [1007.0, 1008.0, 1009.0]
    assert (found[0].tenant, found[0].input_tokens, found[0].output_tokens) == ("chat", 1000, 11)
    assert found[0].prefixes == (3, 4)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_never_grows_beyond_its_bytes_and_keeps_the_newest(tmp_path: Path) -> None:
    ring = TrafficRing(tmp_path, max_bytes=20_000)
    for start in range(0, 3000, 100):
        fill(ring, 100, start=start, prefixes=(1, 2, 3))
        ring.write()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    found = ring.read(since_s=0.0, limit=10_000)
    assert found[-1].at_s == 3999.0
    assert 50 < len(found) < 300


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    ring = TrafficRing(tmp_path, max_bytes=1 << 20)
    fill(ring, 2)
    ring.write()
    with (tmp_path / "traffic-a.jsonl").open("ab") as file:
        file.write(b'{"at_s": 1.0, "ten\n\xff\xfe\n{}\n')
    assert len(ring.read(since_s=0.0, limit=10)) == 2


def test_a_folder_that_cannot_be_written_costs_records_only(tmp_path: Path) -> None:
    ring = TrafficRing(tmp_path / "gone", max_bytes=1 << 20)
    fill(ring, 5)
    ring.write()
    assert (ring.lost, ring.read(since_s=0.0, limit=10)) == (5, [])


def test_nothing_is_kept_when_it_is_switched_off(tmp_path: Path) -> None:
    ring = TrafficRing(tmp_path, max_bytes=0)
    fill(ring, 5)
    ring.write()
    assert [*tmp_path.iterdir()] == []


def test_prompts_share_names_as_far_as_they_are_equal() -> None:
    hasher = PrefixHasher(b"salt")
    shared = b"s" * (3 * BLOCK_BYTES)
    one, other = (hasher.names(shared + rest * BLOCK_BYTES, "tenant/chat/") for rest in (b"a", b"b"))
    assert (len(one), one[:3], one[3] != other[3]) == (4, other[:3], True)
    assert hasher.names(shared, "tenant/other/") != one[:3], "tenants share nothing"
    assert PrefixHasher(b"another").names(shared, "tenant/chat/") != one[:3], "nor do two runs of the daemon"
    assert len(hasher.names(b"x" * (1 << 20), "t")) == MOST_BLOCKS


@pytest.mark.parametrize("changes", [{"output_tokens": 0}, {"new_tokens": 0}])
def test_what_had_no_tokens_is_no_traffic(tmp_path: Path, changes: dict[str, int]) -> None:
    ring = TrafficRing(tmp_path, max_bytes=1 << 20)
    ring.on_ended(request_record(**changes), None, (0, ()), 1.0)
    assert ring.read(since_s=0.0, limit=10) == []
