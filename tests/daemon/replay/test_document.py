from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from replays import document, plan, replayed

from pdmuxd.daemon.replay.document import ReplayDocument
from pdmuxd.daemon.report.files import check_writable, to_json, write_file
from pdmuxd.engine.core.errors import SettingsError

DOCS = Path(__file__).parents[3] / "docs" / "result-json.md"


def test_configuration_and_numbers_are_there_when_written_as_json() -> None:
    of = plan(20)
    read = json.loads(to_json(document(of, replayed(of, "muxwise", "chunked:512"))))
    assert read["schema"] == "pdmuxd.replay/1"
    assert read["created_at"] == "2026-01-02T03:04:05+00:00"
    assert read["trace"]["requests"] == 20
    assert read["trace"]["tick_s"] == 3.0
    assert read["profile"]["provenance"] == of.profile.provenance
    assert read["slo"]["tbt_ms"] == 50.0
    assert [p["policy"] for p in read["policies"]] == ["muxwise", "chunked:512"]
    assert read["policies"][0]["metrics"]["finished"] == 20


def test_an_infinite_time_is_null_when_written_as_json() -> None:
    of = plan(5)
    (result,) = replayed(of, "muxwise")
    never = msgspec.structs.replace(
        result.metrics, ttft=msgspec.structs.replace(result.metrics.ttft, max_ms=math.inf)
    )
    read = json.loads(to_json(document(of, [replace(result, metrics=never)])))
    assert read["policies"][0]["metrics"]["ttft"]["max_ms"] is None


def _keys(kind: object) -> set[str]:
    """Every key of the schema, at any depth."""
    found: set[str] = set()
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[union-attr]
        found.add(field.encode_name)
        inner = getattr(field.type, "item_type", field.type)
        if isinstance(inner, msgspec.inspect.StructType):
            found |= _keys(inner.cls)
    return found


def test_every_key_is_explained_when_the_docs_are_read() -> None:
    text = DOCS.read_text()
    assert [key for key in sorted(_keys(ReplayDocument)) if f"`{key}`" not in text] == []


def test_every_time_names_its_unit_when_a_key_is_a_duration() -> None:
    keys = _keys(ReplayDocument)
    assert {"p99_9_ms", "makespan_s", "ttft_attainment_ratio", "goodput_requests_per_s"} <= keys
    allowed = ("_ms", "_s", "_ratio", "_tokens", "_sms", "_scale")
    numbers = {key for key in keys if any(part in key for part in ("ttft_", "tbt_", "span", "wall", "_per_"))}
    assert [key for key in numbers if not key.endswith(allowed)] == []


@pytest.mark.parametrize(
    ("path", "what"), [(".", "is a directory; give a file"), ("no/such/report.json", "is not a directory")]
)
def test_the_path_is_refused_before_the_work_when_it_cannot_be_written(
    tmp_path: Path, path: str, what: str
) -> None:
    with pytest.raises(SettingsError, match=what):
        check_writable(tmp_path / path)


def test_the_old_file_is_replaced_whole_when_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old and longer")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(SettingsError, match="cannot be written"):
        write_file(tmp_path / "taken", b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
