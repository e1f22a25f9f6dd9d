"""Memory is given back when a prefill begins that would be short of it, and at no other time."""

from pdmuxd.engine.sglang.internals.activation_memory import ActivationMemory


class Driver:
    """A GPU of 100 bytes, for prefills that take 1 byte per token and stream."""

    def __init__(self):
        self.kept, self.given_back = {}, 0
        self.memory = ActivationMemory(self.free, self.give_back)
        self.memory.bytes_per_token = 1.0

    def free(self):
        return 100 - sum(self.kept.values())

    def give_back(self):
        self.kept.clear()
        self.given_back += 1

    def prefill(self, stream, tokens):
        self.memory.prepare(stream, tokens)
        self.kept[stream] = max(tokens, self.kept.get(stream, 0))
        assert self.free() >= 0


def test_prefills_that_find_memory_take_it_and_nothing_is_given_back():
    gpu = Driver()
    for stream, tokens in (("a", 30), ("a", 20), ("b", 30), ("a", 30), ("b", 1)):
        gpu.prefill(stream, tokens)
    assert (gpu.given_back, gpu.kept) == (0, {"a": 30, "b": 30})


def test_what_all_streams_keep_is_given_back_before_one_is_short_of_memory():
    gpu = Driver()
    for stream in "abcd":
        gpu.prefill(stream, 30)
    assert (gpu.given_back, gpu.kept) == (1, {"d": 30})
    gpu.prefill("a", 30)
    gpu.prefill("a", 31)  # takes 31 more: what the smaller one took is in pieces
    assert gpu.given_back == 1


def test_whether_it_is_short_can_be_asked_before_and_changes_nothing():
    gpu = Driver()
    for stream in "abc":
        gpu.prefill(stream, 30)
    asked = [gpu.memory.is_short("d", 30), gpu.memory.is_short("a", 30), gpu.memory.is_short("a", 31)]
    assert (asked, gpu.given_back) == ([True, False, True], 0)
    gpu.prefill("d", 30)
    assert gpu.given_back == 1
    assert not gpu.memory.is_short("a", 30)


def test_it_is_told_once_that_memory_is_short(caplog):
    gpu = Driver()
    with caplog.at_level("INFO"):
        for stream in "abcabc":
            gpu.prefill(stream, 50)
    assert gpu.given_back > 1
    assert [record.message.split(":")[0] for record in caplog.records] == ["pdmuxd"]


def test_the_driver_is_not_asked_where_nothing_was_measured_or_the_stream_has_room():
    def never():
        raise AssertionError("it was asked")

    unmeasured = ActivationMemory(never, never)
    unmeasured.prepare("a", 10**9)
    gpu = Driver()
    gpu.prefill("a", 40)
    gpu.memory._free_bytes = never
    gpu.prefill("a", 40)
