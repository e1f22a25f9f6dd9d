"""The daemon's event bus."""

from pdmuxd.daemon.bus import EventBus
from pdmuxd.daemon.supervisor.events import EngineAccepting, EngineStateChanged


def test_all_hear_an_event_in_the_order_of_their_subscriptions() -> None:
    heard: list[tuple[str, object]] = []
    bus = EventBus()
    bus.subscribe(EngineStateChanged, lambda event: heard.append(("first", event.state)))
    bus.subscribe(EngineStateChanged, lambda event: heard.append(("second", event.reason)))
    bus.publish(EngineStateChanged("down", "killed"))
    assert heard == [("first", "down"), ("second", "killed")]


def test_nobody_else_hears_it() -> None:
    heard: list[object] = []
    bus = EventBus()
    bus.subscribe(EngineAccepting, heard.append)
    bus.publish(EngineStateChanged("down", None))
    bus.publish("an event that nobody knows")
    assert not heard
