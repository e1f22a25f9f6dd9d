"""`pdmuxd usage`: through a daemon and on the database alike."""

from __future__ import annotations

import csv
import io
import time
from datetime import UTC, datetime

import pytest

from pdmuxd.controlplane.history.batch import Batch, Series
from pdmuxd.controlplane.history.columns import Column, empty
from pdmuxd.controlplane.history.writing import HistoryWriter
from pdmuxd.controlplane.services.control_plane import ControlPlane


@pytest.fixture(params=["through the daemon", "on the database"], autouse=True)
def used(request: pytest.FixtureRequest, control_plane: ControlPlane) -> int:
    """An hour that is over, in which `chat` had four requests; when it began."""
    if request.param == "through the daemon":
        request.getfixturevalue("daemon")
    start_s = int(time.time()) // 3600 * 3600 - 3600
    row = empty()
    row[Column.ENDED], row[Column.PROMPT_TOKENS], row[Column.CACHED_TOKENS] = 4, 4000, 1000
    row[Column.TTFT_JUDGED], row[Column.TTFT_MISSED], row[Column.DECODE_SM_MS] = 4, 1, 2500
    batch = Batch(counts={(Series(tenant="chat", since_ms=0, model="llama-8b"), start_s): row})
    HistoryWriter(control_plane.store).write(batch)
    return start_s


def instants(start_s: int) -> list[str]:
    shown = [
        datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%MZ") for at_s in (start_s, start_s + 3600)
    ]
    return ["--from", shown[0], "--to", shown[1]]


def test_usage_is_a_table_json_or_csv(pdmuxd, used: int) -> None:
    table = " ".join(pdmuxd("usage", *instants(used)).out.split())
    assert "chat llama-8b 4 3000 1000 0 2.5 0 - 75% -" in table
    (line,) = pdmuxd("usage", *instants(used), "--json").json["lines"]
    assert (line["tenant"], line["requests"]) == ("chat", 4)
    (row,) = csv.DictReader(io.StringIO(pdmuxd("usage", *instants(used), "--csv").out))
    assert (row["tenant"], row["prefill_tokens"], row["decode_sm_s"]) == ("chat", "3000", "2.5")
    assert "nothing was used" in pdmuxd("usage", *instants(used - 7200)).out


def test_a_wrong_period_is_named(pdmuxd, used: int) -> None:
    assert "from" in pdmuxd("usage", "--from", "yesterday", code=2).err
    assert (
        "to is not later than from" in pdmuxd("usage", *instants(used)[:3], "2020-01-01T00:00Z", code=2).err
    )
