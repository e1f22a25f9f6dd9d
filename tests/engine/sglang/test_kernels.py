"""Which kernels a launch takes, asked of a driver that is made up."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams import kernels as module
from pdmuxd.engine.sglang.streams.kernels import Kernels

OK = SimpleNamespace(name="CUDA_SUCCESS")
KERNEL, MEMSET = "kernel", "memset"


class Driver:
    """Captures what `launch` adds to it."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=OK)
    CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL=KERNEL)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUstream = int

    def __init__(self):
        self.capturing, self.destroyed, self.nodes = False, 0, []

    def launch(self, *handles, kind=KERNEL):
        assert self.capturing
        self.nodes += [(kind, kern, func) for kern, func in handles]

    def cuStreamBeginCapture(self, stream, mode):  # noqa: N802 - the driver's name
        assert (stream, mode) == (7, "relaxed")
        self.capturing, self.nodes = True, []
        return (OK,)

    def cuStreamEndCapture(self, _stream):  # noqa: N802
        assert self.capturing
        self.capturing = False
        return OK, tuple(self.nodes)

    def cuGraphGetNodes(self, graph, count):  # noqa: N802
        return OK, list(graph)[:count], len(graph)

    def cuGraphNodeGetType(self, node):  # noqa: N802
        return OK, node[0]

    def cuGraphKernelNodeGetParams(self, node):  # noqa: N802
        return OK, SimpleNamespace(kern=node[1], func=node[2])

    def cuGraphDestroy(self, _graph):  # noqa: N802
        self.destroyed += 1
        return (OK,)


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(module, "load_driver", lambda: made)
    return made


def test_a_launch_is_new_when_one_of_its_kernels_was_not_taken_before(driver):
    kernels = Kernels(7)
    assert kernels.are_new(lambda: driver.launch((11, 0)))
    assert not kernels.are_new(lambda: driver.launch((11, 0)))
    assert kernels.are_new(lambda: driver.launch((11, 0), (12, 0)))
    assert not kernels.are_new(lambda: driver.launch((12, 0)))
    assert kernels.count == 2
    assert driver.destroyed == 4


def test_each_kernel_is_launched_once_when_many_numbers_of_rows_take_it(driver):
    launched = []

    def launch(count):
        if driver.capturing:
            driver.launch((count // 4 + 1, 0))
        else:
            launched.append(count)

    kernels = Kernels(7)
    assert kernels.load(launch, range(1, 11)) == [1, 4, 8]
    assert kernels.load(launch, (3, 12)) == [12]
    assert launched == [1, 4, 8, 12]
    assert kernels.count == 4


def test_a_kernel_without_a_handle_of_its_own_is_known_by_its_function(driver):
    kernels = Kernels(7)
    assert kernels.are_new(lambda: driver.launch((0, 21)))
    assert kernels.are_new(lambda: driver.launch((0, 22)))
    assert not kernels.are_new(lambda: driver.launch((0, 21)))


def test_only_kernels_count_when_a_launch_sets_memory_too(driver):
    kernels = Kernels(7)
    assert not kernels.are_new(lambda: driver.launch((31, 0), kind=MEMSET))
    assert kernels.count == 0


def test_the_stream_can_be_used_again_when_a_launch_fails(driver):
    kernels = Kernels(7)

    def fails():
        raise RuntimeError("rows that it never had")

    with pytest.raises(RuntimeError, match="never had"):
        kernels.are_new(fails)
    assert not driver.capturing
    assert kernels.are_new(lambda: driver.launch((11, 0)))


def test_the_drivers_name_of_the_error_is_told_when_it_refuses_to_capture(driver, monkeypatch):
    refused = SimpleNamespace(name="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
    monkeypatch.setattr(driver, "cuStreamBeginCapture", lambda *_: (refused,), raising=False)
    with pytest.raises(EngineError, match="cuStreamBeginCapture failed: CUDA_ERROR_STREAM_CAPTURE"):
        Kernels(7).are_new(lambda: None)
