"""Every screen at three sizes, dark, light and without colour, as it is kept in `screens/`."""

from __future__ import annotations

import pytest
import routes
import scenes

from pdmuxd.tui.show.palette import DARK, LIGHT

SIZES = (
    (80, 24),
    pytest.param((120, 40), marks=pytest.mark.slow),
    pytest.param((200, 60), marks=pytest.mark.slow),
)
SCREENS = {
    "overview": ["1"],
    "tenants": ["2"],
    "tenant": ["2", "enter"],
    "tenant-changed": ["2", "enter"],
    "edit": ["2", "enter", "e"],
    "partitions": ["3"],
    "guard": ["4"],
    "decisions": ["5"],
    "timeline": ["2", "enter", "enter"],
    "engine": ["6"],
    "restart": ["6", "x"],
    "help": ["1", "question_mark"],
    "alarms": ["1", "exclamation_mark"],
    "jump": ["1", "colon", "b"],
}


def grow(daemon):
    """Minutes of a load that comes and goes."""
    for second in range(240):
        prefill = 0.25 + 0.4 * ((second % 60) / 60)
        decode = 0.2 + 0.1 * ((second // 30) % 3)
        ttft = {"count": 9, "p50": 300.0 + second, "p99": 700.0 + 3 * second}
        yield scenes.stats(
            second - 240, sm_busy_prefill_ratio=prefill, sm_busy_decode_ratio=decode, ttft_ms=ttft
        )


@pytest.fixture
def whole(busy, request):
    routes.serve_all(busy)
    if "tenant-changed" in request.node.name:
        # Its targets were edited four minutes ago.
        busy.answer("GET", "/effects", {"effects": [routes.effect()]})
    return busy


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40", "200x60"])
@pytest.mark.parametrize("name", SCREENS)
async def test_screen(console, whole, matches, name, size):
    async with console(whole, size=size) as terminal:
        for stats in grow(whole):
            whole.send("stats", stats, after_s=1)
        whole.send("stats", scenes.stats())
        for key in SCREENS[name]:
            await terminal.press(key)
            await terminal.answered()
        matches(terminal.text)


def painted(terminal):
    """Every run of the screen with its colours: what a theme changes."""
    strips = terminal.app.screen._compositor.render_strips()
    return {
        (str(segment.style.color and segment.style.color.name), str(segment.style.bgcolor.name))
        for strip in strips
        for segment in strip
        if segment.style is not None and segment.style.bgcolor is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
@pytest.mark.parametrize("look", ["light", "no-colour"])
@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_says_the_same_when_it_looks_otherwise(
    console, whole, matches, name, look, size, monkeypatch
):
    """On light ground the same text; without colour what is kept for that, or the same where nothing is."""
    if look == "no-colour":
        monkeypatch.setenv("NO_COLOR", "1")
    async with console(whole, size=size, is_light=look == "light") as terminal:
        for stats in grow(whole):
            whole.send("stats", stats, after_s=1)
        whole.send("stats", scenes.stats())
        for key in SCREENS[name]:
            await terminal.press(key)
            await terminal.answered()
        kept = f"screen-{name}-{size[0]}x{size[1]}"
        matches(terminal.text, kept if look == "light" else f"{kept}-no-colour", otherwise=kept)
        if look == "no-colour":
            assert not terminal.has_colour
            return
        grounds = {ground for _, ground in painted(terminal)}
        assert LIGHT.background in grounds
        assert DARK.background not in grounds


@pytest.mark.parametrize("name", ["overview", "partitions", "guard"])
async def test_screen_without_colour(console, whole, matches, name, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(whole) as terminal:
        await terminal.press(*SCREENS[name])
        await terminal.answered()
        matches(terminal.text)
        assert not terminal.has_colour


@pytest.mark.parametrize("is_light", [False, True])
async def test_the_bar_has_the_palettes_colours_when_there_is_colour(console, whole, is_light):
    async with console(whole, is_light=is_light) as terminal:
        row = next(at for at, line in enumerate(terminal.text.splitlines()) if line.startswith("1 min"))
        bar = terminal.styles(row)
        assert [colour for colour in bar if colour in ("#e69f00", "#0a66b0")] == ["#e69f00", "#0a66b0"]
        await terminal.press("t")
        assert terminal.app.theme == ("pdmuxd-dark" if is_light else "pdmuxd-light")
        assert terminal.styles(row) != bar


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1, 5), (40, 24), (79, 30), (159, 70), (300, 10)])
async def test_no_screen_fails_when_the_terminal_is_of_any_size(console, whole, width, height):
    async with console(whole, size=(width, height)) as terminal:
        for key in "123456":
            await terminal.press(key)
            await terminal.answered()
            assert len(terminal.text.splitlines()) == height
