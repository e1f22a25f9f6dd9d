"""Two streams from one split: which side has the whole groups of SMs."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.streams import green

TOTAL_SMS = 132


def resource(sms):
    return SimpleNamespace(sm=SimpleNamespace(smCount=sms))


class FakeDriver:
    """An H200's driver: groups of 8, and one split of the whole device."""

    CUresult = SimpleNamespace(CUDA_SUCCESS="ok")
    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM="sm")
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self):
        self.asked = []
        self.streams = 0

    def cuDeviceGet(self, gpu):  # noqa: N802 - the driver's name
        return "ok", gpu

    def cuDeviceGetDevResource(self, device, kind):  # noqa: N802 - the driver's name
        return "ok", resource(TOTAL_SMS)

    def cuDevSmResourceSplitByCount(self, count, whole, flags, sms):  # noqa: N802 - the driver's name
        assert (count, whole.sm.smCount) == (1, TOTAL_SMS), "what a split leaves cannot be split"
        self.asked.append(sms)
        given = -(-sms // 8) * 8
        return "ok", [resource(given)], 1, resource(TOTAL_SMS - given)

    def cuDevResourceGenerateDesc(self, parts, count):  # noqa: N802 - the driver's name
        return "ok", parts[0]

    def cuGreenCtxCreate(self, description, device, flags):  # noqa: N802 - the driver's name
        return "ok", description

    def cuGreenCtxGetDevResource(self, context, kind):  # noqa: N802 - the driver's name
        return "ok", context

    def cuGreenCtxStreamCreate(self, context, flags, priority):  # noqa: N802 - the driver's name
        self.streams += 1
        return "ok", self.streams


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(green, "load_driver", lambda: fake)
    return fake


@pytest.mark.parametrize(
    ("prefill_sms", "decode_sms", "whole_groups"), [(116, 16, 16), (112, 20, 112), (64, 68, 64), (68, 64, 64)]
)
def test_decode_has_whole_groups_where_its_size_allows_it(driver, prefill_sms, decode_sms, whole_groups):
    prefill, decode = green.split_device(0, prefill_sms, decode_sms)
    assert (prefill.sms, decode.sms) == (prefill_sms, decode_sms)
    assert driver.asked == [whole_groups]
    assert prefill.handle != decode.handle


def test_a_split_that_the_driver_rounds_is_an_error_with_both_sizes(driver):
    with pytest.raises(EngineError, match="partition 100,30: the driver gave 104,28 SMs instead"):
        green.split_device(0, 100, 30)
