"""Tokens that are held back go out later, as they were."""

from types import SimpleNamespace

from pdmuxd.engine.sglang.internals.streaming import HoldingStreamer


class Sent:
    tree_cache = "cache"

    def __init__(self):
        self.calls = []

    def stream_output(self, requests, return_logprob, skip=None):
        self.calls.append((list(requests), return_logprob, skip))


def test_tokens_go_out_in_order_when_some_were_held():
    sent = Sent()
    streamer = HoldingStreamer(sent)
    first, step = SimpleNamespace(rid="a"), SimpleNamespace(rid="z")
    requests = [first]
    with streamer.holding(True):
        streamer.stream_output(requests, False, skip=step)
    requests.append(step)  # The batch becomes the one that decodes, and grows.
    streamer.stream_output([step], True)
    streamer.release()
    streamer.release()
    assert sent.calls == [([step], True, None), ([first], False, step)]


def test_nothing_is_held_when_that_is_not_asked_for():
    sent = Sent()
    streamer = HoldingStreamer(sent)
    with streamer.holding(False):
        streamer.stream_output([], True)
    assert sent.calls == [([], True, None)]
    assert streamer.tree_cache == "cache", "the rest is SGLang's own"
