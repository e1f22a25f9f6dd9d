"""What the command of an incident is predicted to do: the same requests with the other tenant limited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from telemetry_feeds import HELLO, START_S, HandClock, directory, predicting, request_record, step

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.limit_forecast import ENOUGH, predicted
from pdmuxd.controlplane.telemetry.open_incident import Limiting
from pdmuxd.controlplane.telemetry.telemetry import Telemetry

OF = Limiting(incident_id="chat-1", tenant="chat", began_s=START_S, behind="docs", concurrency=2)


def _ended(known: Telemetry, name: str, tenant: str, *, new_tokens: int, ttft_s: float) -> None:
    record = {"request_id": name, "tenant": tenant, "new_tokens": new_tokens, "ttft_s": ttft_s}
    known.on_request(request_record(**record, tbt_gaps=100, tbt_gaps_met=100))
    known.on_answered(name, status=200)


def flooded(*, seconds: int, docs: int, chat_ttft_s: float) -> Telemetry:
    """`docs` sends so many long prompts at once, `chat` a short one each second."""
    clock = HandClock()
    known = Telemetry(clock=clock)
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    known.on_directory(directory(chat=0.04, docs=0.06))
    for number in range(docs):
        known.on_begin(f"d{number}", tenant="docs", path="/")
    for second in range(seconds):
        known.on_message(step(now_s=float(second), decode_bs=12, decode_reused_tokens=12_000))
        known.on_begin(f"c{second}", tenant="chat", path="/")
        if second >= 5:
            _ended(known, f"c{second - 5}", "chat", new_tokens=400, ttft_s=chat_ttft_s)
        if 10 <= second < 10 + docs:
            _ended(known, f"d{second - 10}", "docs", new_tokens=8000, ttft_s=second - 9.0)
        clock.turn(1.0)
    return known


def test_a_limit_on_who_floods_is_predicted_to_help() -> None:
    told = predicted(OF, flooded(seconds=40, docs=30, chat_ttft_s=0.4), predicting)
    assert told.why_not is None
    assert told.text == "chat: 87.5% to 100.0% of TTFT in time"


def test_a_limit_that_lets_all_in_is_halved_until_it_keeps_the_promise() -> None:
    known = flooded(seconds=40, docs=30, chat_ttft_s=0.4)
    told = predicted(replace(OF, concurrency=1000), known, predicting)
    assert told.text == "chat: 87.5% to 100.0% of TTFT in time"
    assert told.concurrency is not None
    assert told.concurrency < 30
    again = predicted(replace(OF, concurrency=told.concurrency), known, predicting)
    assert again.concurrency == told.concurrency


@pytest.mark.parametrize(
    ("seconds", "chat_ttft_s", "why"),
    [
        (40, 4.9, "the forecast does not see what happens: 85.0% of TTFT in time, the engine made 0.0%"),
        (ENOUGH - 1, 0.4, f"chat has sent {ENOUGH - 1} requests since it began"),
    ],
)
def test_the_reason_is_told_when_nothing_can_be_predicted(seconds: int, chat_ttft_s: float, why: str) -> None:
    told = predicted(OF, flooded(seconds=seconds, docs=30, chat_ttft_s=chat_ttft_s), predicting)
    assert (told.text, told.why_not) == (None, why)


def test_the_reason_is_told_when_no_engine_can_be_asked() -> None:
    known = flooded(seconds=40, docs=30, chat_ttft_s=0.4)
    known.status = lambda: NO_ENGINE
    told = predicted(OF, known, predicting)
    assert told.text is None
    assert str(told.why_not).startswith("no forecast: ")
