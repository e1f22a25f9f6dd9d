"""DeepGEMM's products on a partition, with a library that notes for how many SMs it was asked to launch."""

import pytest

from pdmuxd.engine.sglang.internals import deep_gemm_sms
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

PREFILL, DECODE = 100, 32


class Library:
    """Like the module; as in the real one, a number of SMs that is odd or too large is an error."""

    def __init__(self):
        self.sms = 132
        self.launched = []

    def get_num_sms(self):
        return self.sms

    def set_num_sms(self, number):
        assert 0 < number <= 132
        assert number % 2 == 0
        self.sms = number

    def fp8_gemm_nt(self, *given, **named):
        self.launched.append((self.sms, given, named))
        if given == ("fails",):
            raise RuntimeError("as a kernel may")
        return "out"

    def fp8_paged_mqa_logits(self):
        self.launched.append((self.sms, (), {}))


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def kernels(library):
    made = PartitionKernels(in_force=None, total_sms=132)
    deep_gemm_sms.tell(made, library)
    return made


def test_a_product_is_launched_for_the_partitions_sms_and_the_number_is_put_back(kernels, library):
    with kernels.on(PREFILL):
        assert library.fp8_gemm_nt("x", recipe=(1, 128, 128)) == "out"
        assert library.sms == 132
        with kernels.on(DECODE):
            library.fp8_gemm_nt("y")
    assert library.launched == [(PREFILL, ("x",), {"recipe": (1, 128, 128)}), (DECODE, ("y",), {})]


def test_on_all_sms_it_is_launched_as_ever(kernels, library):
    library.fp8_gemm_nt("x")
    with kernels.on(132):
        library.fp8_gemm_nt("x")
    assert [sms for sms, *_ in library.launched] == [132, 132]


def test_the_number_is_put_back_when_a_launch_fails(kernels, library):
    with kernels.on(PREFILL), pytest.raises(RuntimeError):
        library.fp8_gemm_nt("fails")
    assert library.sms == 132


@pytest.mark.parametrize(("partition", "told"), [(99, 98), (8, 8)])
def test_the_number_is_even(kernels, library, partition, told):
    with kernels.on(partition):
        library.fp8_gemm_nt("x")
    assert library.launched[0][0] == told


def test_sms_that_sglang_left_to_another_stream_stay_left(kernels, library):
    library.set_num_sms(64)
    with kernels.on(PREFILL):
        library.fp8_gemm_nt("x")
    assert library.launched[0][0] == 64
    assert library.sms == 64


def test_what_reads_a_plan_for_all_sms_is_not_told(kernels, library):
    with kernels.on(PREFILL):
        library.fp8_paged_mqa_logits()
    assert library.launched == [(132, (), {})]
