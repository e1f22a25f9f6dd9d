"""The price list over REST, and usage told in money."""

from __future__ import annotations

import csv
import io
import re
import time

import pytest
from stores import AdminCalls

from pdmuxd.controlplane.history.batch import Batch, Series
from pdmuxd.controlplane.history.columns import Column, empty
from pdmuxd.controlplane.history.writing import HistoryWriter
from pdmuxd.controlplane.services.control_plane import ControlPlane

PATH = "/api/v1/prices"
LINE = {"tenant": None, "model": None, "input": "2", "cached": "0.5", "output": "10"}


@pytest.fixture
def call(control_plane: ControlPlane) -> AdminCalls:
    return AdminCalls(control_plane)


async def test_usage_is_told_in_money_when_there_are_prices(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    row = empty()
    row[Column.ENDED], row[Column.PROMPT_TOKENS], row[Column.CACHED_TOKENS] = 3, 1500, 500
    row[Column.OUTPUT_TOKENS] = 7
    series = Series(tenant="chat", since_ms=0, model="llama-8b")
    HistoryWriter(control_plane.store).write(Batch(counts={(series, int(time.time()) // 60 * 60): row}))
    (line,) = (await call("GET", "/api/v1/usage")).json()["lines"]
    assert (line["cost"], line["currency"]) == (None, None)

    answer = await call("PUT", PATH, json={"currency": "EUR", "prices": [LINE]})
    assert (answer.status_code, answer.json()["prices"]) == (200, [LINE])
    assert (await call("GET", PATH)).headers["ETag"] == answer.headers["ETag"]

    (line,) = (await call("GET", "/api/v1/usage")).json()["lines"]
    assert (line["cost"], line["currency"]) == ("0.002320", "EUR"), "1000 x 2 + 500 x 0.5 + 7 x 10"
    (shown,) = csv.DictReader(io.StringIO((await call("GET", "/api/v1/usage?format=csv")).text))
    assert (shown["cost"], shown["currency"]) == ("0.002320", "EUR")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"currency": "EUR"}, "prices is missing; allowed are up to 1000 prices"),
        ({"prices": [LINE]}, "currency is None; allowed are three capital letters"),
        (
            {"currency": "EUR", "prices": [LINE | {"input": 0.15}]},
            "input is 0.15; allowed are decimal numbers",
        ),
        ({"currency": "EUR", "prices": [LINE | {"output": "-1"}]}, "output is '-1'; allowed are decimal"),
        ({"currency": "EUR", "prices": [LINE | {"cached": "1" * 17}]}, "cached is .*; allowed are decimal"),
        ({"currency": "EUR", "prices": [LINE | {"tenant": "no"}]}, "there is no tenant 'no'"),
        ({"currency": "EUR", "prices": [LINE | {"model": ""}]}, "model is .*; allowed are null, or 1 to 200"),
        ({"currency": "EUR", "prices": [LINE | {"price": "1"}]}, "is not a field here"),
    ],
)
async def test_a_wrong_list_is_refused_by_the_fields_name(
    call: AdminCalls, body: dict[str, object], said: str
) -> None:
    answer = await call("PUT", PATH, json=body)
    assert answer.status_code == 422
    assert re.search(said, answer.json()["detail"]), answer.text


async def test_a_list_that_another_operator_changed_is_not_overwritten(call: AdminCalls) -> None:
    version = (await call("GET", PATH)).headers["ETag"]
    body = {"currency": "EUR", "prices": [LINE]}
    assert (await call("PUT", PATH, json=body, headers={"If-Match": version})).status_code == 200
    assert (await call("PUT", PATH, json=body, headers={"If-Match": version})).status_code == 412
