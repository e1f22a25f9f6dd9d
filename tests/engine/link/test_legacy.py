"""Profiles of format 1 hold the same under the names of format 2."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from profiling import measured_profile

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.link.legacy import RENAMED_KEYS, RENAMED_MODES, with_new_names
from pdmuxd.engine.profiling.document import FORMAT, FORMAT_1, from_json, samples_from_json, to_json
from pdmuxd.engine.profiling.measurement import Point, Sample


def with_old_names(text: str) -> str:
    for old, new in (RENAMED_KEYS | RENAMED_MODES).items():
        text = text.replace(f'"{new}"', f'"{old}"')
    return text


def a_profile():
    pair = Point(mode="colocated", prefill_sms=96, decode_sms=36, prefill=((512, 0),), decode=(64, 64))
    sample = Sample(point=pair, prefill_s=0.02, decode_s=0.01, decode_high_s=0.011)
    return msgspec.structs.replace(measured_profile(), samples=(sample,), prefill_colocated_ratio=0.25)


def test_a_profile_keeps_its_values_when_it_is_of_format_1() -> None:
    profile = a_profile()
    old = with_old_names(to_json(profile).decode()).replace(FORMAT, FORMAT_1)
    assert '"beside"' in old
    assert '"prefill_beside_ratio":0.25' in old
    assert from_json(old, "it") == profile


def test_stored_samples_are_read_by_the_format_of_their_document() -> None:
    samples = a_profile().samples
    new = msgspec.json.encode(samples).decode()
    document = json.dumps({"format": FORMAT_1})
    assert samples_from_json(with_old_names(new), document) == samples
    assert samples_from_json(new, json.dumps({"format": FORMAT})) == samples


def test_old_names_are_refused_when_the_format_is_the_new_one() -> None:
    with pytest.raises(ProfileError, match=r"beside.*\$\.samples\[0\]\.point\.mode"):
        from_json(with_old_names(to_json(a_profile()).decode()), "it")


def test_a_profile_of_the_emulator_keeps_its_values_when_it_is_of_format_1(tmp_path: Path) -> None:
    shipped = load_profile("h200-llama-8b-measured")
    old = with_old_names(msgspec.json.encode(shipped).decode()).replace('"format":2', '"format":1')
    path = tmp_path / "old.json"
    path.write_text(old, encoding="utf-8")
    assert shipped.prefill_colocated_ratio
    assert load_profile(str(path)) == shipped


def test_only_names_of_fields_and_modes_change() -> None:
    text = '{"name":"beside","note":["beside_ratio",1],"point":{"mode":"decode"}}'
    assert json.loads(with_new_names(text)) == json.loads(text)
