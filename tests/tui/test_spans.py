"""A key has every chart show the last minutes, the last half hour or the last day."""

from __future__ import annotations

import pytest
import routes


@pytest.fixture
def whole(busy):
    routes.serve_all(busy)
    return busy


async def test_charts_show_a_day_when_the_key_was_pressed_twice(console, whole):
    async with console(whole, size=(120, 40)) as terminal:
        assert "9 min ago" in terminal.text
        await terminal.press("h")
        assert "38 min ago" in terminal.text
        whole.answer("GET", "/history", routes.history(step_s=600))
        await terminal.press("h")
        await terminal.answered()
        await terminal.until_shown("h: 24 h")
        assert "last 24 h" in terminal.text
        assert whole.queries["/api/v1/history"]["step_s"] == "600"
        assert whole.queries["/api/v1/history"]["from"].startswith("20")
        # Five hours of figures are at the right; nothing is known of the time before.
        below = next(line for line in terminal.text.splitlines() if line.startswith("    0 ┤"))
        assert "╌" in below[:80]
        assert "╌" not in below[-18:-1]
        await terminal.press("h")
        assert "last 30 min" in terminal.text


@pytest.mark.slow
async def test_a_tenants_chart_shows_a_day_when_charts_do(console, whole):
    async with console(whole, size=(120, 40)) as terminal:
        await terminal.press("2", "enter")
        await terminal.until_shown("chat: in time, by minute")
        whole.answer("GET", "/history", routes.history(step_s=600))
        await terminal.press("h", "h")
        await terminal.answered()
        await terminal.until_shown("24 h ago")


@pytest.mark.slow
async def test_changes_and_restarts_are_on_the_axis_when_they_are_in_its_time(console, whole):
    async with console(whole, size=(200, 60)) as terminal:
        await terminal.press("h")
        await terminal.answered()
        axes = [line for line in terminal.text.splitlines() if "└─" in line]
        assert any("E" in line and "▲" in line for line in axes)
