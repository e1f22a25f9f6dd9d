"""Profiles as files: what is read back, and what is refused by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from profiling import measured_profile

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.profiling import document
from pdmuxd.engine.profiling.document import (
    FORMAT,
    from_json,
    read_bytes,
    read_file,
    samples_from_json,
    to_json,
)

PROFILE = measured_profile()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    parsed = json.loads(to_json(PROFILE))
    change(parsed)
    return json.dumps(parsed).encode()


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    plain, packed = tmp_path / "p.json", tmp_path / "p.json.gz"
    plain.write_bytes(to_json(PROFILE))
    packed.write_bytes(gzip.compress(to_json(PROFILE)))
    assert read_file(plain) == read_file(packed) == PROFILE
    assert samples_from_json(
        msgspec.json.encode(PROFILE.samples).decode(), to_json(PROFILE).decode()
    ) == tuple(PROFILE.samples)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: p.update(format="pdmuxd-profile/9"), f"format is 'pdmuxd-profile/9'.* reads {FORMAT}"),
        (lambda p: p.pop("format"), "not a measured profile: .*format"),
        (lambda p: p.pop("device"), "not a measured profile: .*device"),
        (lambda p: p.update(total_sms="many"), r"not a measured profile: .*\$\.total_sms"),
        (
            lambda p: p["solo_run"][1]["prefill"].update(per_new_s=-1e-5),
            r"prefill\.per_new_s on \d+ SMs is -1e-05; allowed are numbers from 0 on",
        ),
        (
            lambda p: p["solo_run"][0]["decode"].update(fixed_s=-0.5),
            r"decode\.fixed_s on \d+ SMs is -0\.5; allowed are numbers from 0 on",
        ),
        (
            lambda p: p["solo_run"][0]["prefill"].update(colocated_ratio=0.5),
            r"prefill\.colocated_ratio on \d+ SMs is 0\.5; allowed are numbers from 1 on, and 0",
        ),
    ],
)
def test_a_document_is_refused_by_the_field_that_is_wrong(
    change: Callable[[dict[str, Any]], object], says: str
) -> None:
    with pytest.raises(ProfileError, match=rf"^here: {says}"):
        from_json(changed(change), "here")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xfe", b'{"format": 3}', to_json(PROFILE)[:-20]])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    with pytest.raises(ProfileError, match=r"^here: not a measured profile: "):
        from_json(data, "here")


def test_a_file_is_refused_with_its_name_when_it_cannot_be_read(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProfileError, match=r"none\.json: cannot be read: No such file"):
        read_bytes(tmp_path / "none.json")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(to_json(PROFILE))[:-30])
    with pytest.raises(ProfileError, match=r"cut\.json\.gz: not a whole gzip file"):
        read_bytes(cut)
    monkeypatch.setattr(document, "MOST_BYTES", 1000)
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(ProfileError, match="larger than 1000 bytes"):
        read_bytes(bomb)


def test_stored_samples_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ProfileError, match="stored samples cannot be read"):
        samples_from_json("[3]", to_json(PROFILE).decode())


def test_an_engine_is_told_what_was_measured_and_of_which_device() -> None:
    told = PROFILE.predictors(7)
    assert (told.profile_id, told.profile, told.gpus) == (7, "p", 1)
    assert (told.device_name, told.total_sms) == (PROFILE.provenance.device, PROFILE.total_sms)
    assert (told.solo_run, told.guard_cells) == (PROFILE.solo_run, PROFILE.guard_cells)
    assert told.provenance == PROFILE.provenance_line


def test_provenance_is_one_line_that_leaves_out_what_there_is_not() -> None:
    line = PROFILE.provenance_line
    assert line.startswith("measured: m on ")
    assert line.endswith(", 3 samples, 2026-01-31, engine emulator 0")
    two = msgspec.structs.replace(
        PROFILE,
        tensor_parallel=TensorParallel(gpus=2),
        provenance=msgspec.structs.replace(PROFILE.provenance, driver="580.1", sglang_version="0.5.23"),
    )
    assert two.devices == f"2 x {PROFILE.provenance.device}"
    assert two.provenance_line.endswith("engine emulator 0, driver 580.1, SGLang 0.5.23")


def test_the_worst_error_is_that_of_a_predictor_not_of_the_roofline() -> None:
    assert PROFILE.worst_p90 == 0.02
    roofline = msgspec.structs.replace(PROFILE.fits[0], predictor="roofline", errors=PROFILE.fits[0].errors)
    assert msgspec.structs.replace(PROFILE, fits=(roofline,)).worst_p90 == 1.0, "nothing is fitted"
