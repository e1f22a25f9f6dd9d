"""What serves while predictions prove wrong, over REST."""

from __future__ import annotations

from admin_daemon import LEARNED, MadeUpFallback
from msgspec.structs import replace
from stores import AdminCalls

from pdmuxd.controlplane.services.control_plane import ControlPlane

PATH = "/api/v1/policy/fallback"


async def test_the_plan_and_its_regret_are_told(control_plane: ControlPlane) -> None:
    call = AdminCalls(control_plane, fallback=MadeUpFallback())
    answer = await call("GET", PATH)
    assert (answer.json()["plan"], answer.json()["learned"]) == ("chunked:512", None)
    answer = await call("POST", PATH)
    assert (answer.status_code, answer.json()["is_learning"]) == (202, True)
    told = (await call("GET", PATH)).json()
    assert (told["plan"], told["step_tokens"], told["is_learning"]) == ("chunked:256", 256, False)
    learned = told["learned"]
    assert (learned["regret_ratio"], learned["slower_regret_ratio"]) == (0.25, 0.2)
    assert [one["step_tokens"] for one in learned["candidates"]] == [256, 512]


async def test_a_daemon_is_needed(control_plane: ControlPlane) -> None:
    assert (await AdminCalls(control_plane)("GET", PATH)).status_code == 503


def test_nothing_is_regretted_where_nothing_was_served_in_time() -> None:
    assert replace(LEARNED, goodput_per_s=0.0).regret_ratio == 0.0
    assert replace(LEARNED, goodput_per_s=4.0).regret_ratio == -0.5
