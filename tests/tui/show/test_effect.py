"""What the last change did: shown while it is recent, and only where there is enough to compare."""

from __future__ import annotations

import msgspec
import pytest
import routes
import scenes

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import EffectsOut, StatsEvent, TenantsEvent
from pdmuxd.tui.show.lines import length
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.effect import effect, recent_effect
from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.view import View


def view_of(answer=None, **changes):
    state = ConsoleState()
    state.stats = msgspec.convert(scenes.stats(), StatsEvent, strict=False)
    state.tenants = msgspec.convert(scenes.tenants(), TenantsEvent, strict=False)
    known = {"effects": [routes.effect(**changes)]} if answer is None else answer
    is_refusal = isinstance(known, Refusal)
    state.answers.effects = {
        "chat": known if is_refusal else msgspec.convert(known, EffectsOut, strict=False)
    }
    return View(state=state, now_s=1000.0, url="http://127.0.0.1:8081")


def text_of(view, width=100, height=9):
    return "\n".join("".join(text for text, _ in line) for line in effect("chat", view, width, height))


def test_the_tenant_comes_first_and_of_others_those_that_moved():
    lines = text_of(view_of()).splitlines()
    assert "4 min ago: minute before → 4 min since" in lines[0]
    assert lines[1].startswith("SMs     P 100 | D 32 → P 84 | D 48 in splits, 62% → 70% of steps")
    assert lines[2].startswith("load    ")
    assert [line.split()[0] for line in lines[4:]] == ["chat", "batch"]


def test_only_what_is_kept_no_more_or_again_has_a_colour():
    chat, batch = effect("chat", view_of(), 100, 9)[4:]
    assert [role for text, role in chat if "94.1%" in text] == [Role.GOOD]
    assert [role for text, role in batch if "95.1%" in text] == [Role.BAD]
    assert {role for text, role in (*chat, *batch) if "→" in text} == {Role.GOOD, Role.BAD, Role.PLAIN}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("too_early", "too early to compare: 20 s since, a minute is needed"),
        ("overtaken", "not compared: another change, or an engine's start, came within a minute"),
    ],
)
def test_no_figures_are_shown_when_they_would_say_nothing(state, said):
    text = text_of(view_of(state=state, after=None, at=scenes.instant(-20)))
    assert said in text
    assert "→" not in text


def test_it_is_said_when_nobody_else_moved():
    same = routes.effect()["before"]
    assert "no other tenant moved" in text_of(view_of(after=same))


def test_another_tenant_is_left_out_when_it_had_hardly_any_requests():
    few = routes.effect()
    for side in ("before", "after"):
        few[side]["tenants"][0]["requests"] = 19
    assert "batch" not in text_of(view_of({"effects": [few]}))


def test_it_is_said_when_another_change_was_in_the_minute_before():
    assert "another change was in the minute before" in text_of(view_of(mixed=True), width=140)


def test_no_split_is_named_when_all_was_fused_or_nothing_ran():
    before, after = routes.effect()["before"], routes.effect()["after"]
    nothing = dict.fromkeys(before["sms"])
    fused = before["sms"] | {"prefill_sms": None, "decode_sms": None, "split_ratio": 0.0, "fused_ratio": 0.9}
    text = text_of(view_of(before=before | {"sms": nothing}, after=after | {"sms": fused}))
    assert "SMs     no split → fused 90%; busy - → 87%" in text


@pytest.mark.parametrize(
    "answer",
    [
        {"effects": []},
        {"effects": [routes.effect(at=scenes.instant(-1801))]},
        Refusal(status=404, detail="none"),
    ],
)
def test_nothing_is_shown_when_there_was_no_change_of_late(answer):
    assert recent_effect("chat", view_of(answer)) is None


@pytest.mark.parametrize("width", [1, 20, 80, 300])
def test_no_line_is_wider_than_the_panel_when_it_is_narrow(width):
    table = effect("chat", view_of(text="x" * 300), width, 9)
    assert all(length(line) <= width for line in (table[0], *table[3:5]))


def test_a_hostile_text_is_harmless_when_it_is_shown():
    assert "\x1b" not in text_of(view_of(text="TBT \x1b[31m"))
