"""What a campaign leaves when its process is killed, and how the next goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from profiling import greeting_of

from pdmuxd.daemon.profiling.journal import NOTHING, Earlier, Journal, journal_path, read_journal
from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.profiling.document import Provenance, read_file
from pdmuxd.engine.profiling.measurement import Point, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = "2026-01-31T12:00:00Z"
SAMPLES = [
    Sample(point=Point(mode="decode", prefill_sms=0, decode_sms=36, decode=(500,) * bs), decode_s=0.01 * bs)
    for bs in (1, 2, 3)
]


def written(path: Path, samples: Sequence[Sample], *, earlier: Earlier = NOTHING) -> Earlier:
    with Journal(path=path, earlier=earlier, now=NOW) as journal:
        for number, sample in enumerate(samples, 1):
            journal.add(sample, earlier.spent_s + number)
    return read_journal(path)


def test_all_points_are_there_when_read_back(tmp_path: Path) -> None:
    found = written(tmp_path / "j", SAMPLES)
    assert found == Earlier(began_at=NOW, samples=tuple(SAMPLES), spent_s=3.0)


def test_points_are_added_to_the_earlier_ones_when_it_goes_on(tmp_path: Path) -> None:
    first = written(tmp_path / "j", SAMPLES[:2])
    found = written(tmp_path / "j", SAMPLES[2:], earlier=first)
    assert found.samples == tuple(SAMPLES)
    assert found.spent_s == 3.0


def test_whole_lines_count_when_the_last_one_is_torn(tmp_path: Path) -> None:
    written(tmp_path / "j", SAMPLES)
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[:-20])
    found = read_journal(tmp_path / "j")
    assert found.samples == tuple(SAMPLES[:2])
    assert written(tmp_path / "j", SAMPLES[2:], earlier=found).samples == tuple(SAMPLES)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b'{"format":"x/1","began_at":""}\n', b"\xff\n"])
def test_there_is_nothing_to_go_on_from_when_the_file_is_no_journal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    assert read_journal(tmp_path / "j") == NOTHING


def test_it_is_told_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    with pytest.raises(ProfileError, match=r"cannot be read.*--fresh"):
        read_journal(tmp_path / "j")


def test_nothing_is_shared_when_engine_model_gpu_or_table_differ(tmp_path: Path) -> None:
    hello = greeting_of()
    others = [
        {"device": "another"},
        {"model_hash": "another"},
        {"partitions": ((8, 124),)},
        {"engine_version": "2"},
        {"captured_decode_bs": (1,)},
        {"captured_fused_tokens": (32,)},
        {"tensor_parallel": TensorParallel(gpus=2)},
    ]
    paths = {journal_path(tmp_path, msgspec.structs.replace(hello, **other)) for other in [{}, *others]}
    assert len(paths) == 1 + len(others)
    assert journal_path(tmp_path, msgspec.structs.replace(hello, pid=7)) in paths


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_next_run_goes_on_from_the_points_when_one_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "s"
    with subprocess.Popen(command(state, "60s", tmp_path / "killed.json"), stderr=subprocess.PIPE) as first:
        deadline_s = time.monotonic() + 60.0
        while time.monotonic() < deadline_s and points(state) < 50:
            time.sleep(0.02)
        first.kill()
    assert not (tmp_path / "killed.json").exists()
    (journal,) = state.glob("campaign-*.jsonl")
    content = journal.read_bytes()
    earlier = read_journal(journal)
    kept = len({sample.point for sample in earlier.samples})
    assert kept >= 20

    anew = subprocess.run(
        [*command(state, "10s", tmp_path / "anew.json"), "--fresh"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "going on" not in anew.stderr
    assert provenance(tmp_path / "anew.json").took_s > 9.0

    journal.write_bytes(content)
    done = subprocess.run(
        command(state, "60s", tmp_path / "done.json"), capture_output=True, text=True, check=True
    )
    assert f"going on from {kept} points of 20" in done.stderr
    assert provenance(tmp_path / "done.json").samples > kept
    took_s = provenance(tmp_path / "done.json").took_s
    assert 55.0 < took_s < 60.0 + earlier.spent_s, "the budget is of both runs together"
    assert points(state) == 0, "what is done is not gone on from"


def command(state: Path, budget: str, output: Path) -> list[str]:
    words = ["--set", f"state_dir={state}", "profile", "run", "--budget", budget, "--output", str(output)]
    return [sys.executable, "-m", "pdmuxd.daemon.cli.main", *words]


def points(state: Path) -> int:
    return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in state.glob("campaign-*.jsonl"))


def provenance(file: Path) -> Provenance:
    return read_file(file).provenance
