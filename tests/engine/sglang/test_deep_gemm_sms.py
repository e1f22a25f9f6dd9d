"""DeepGEMM's products on a partition, with a library that notes for how many SMs it was asked to launch."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.sglang.internals import deep_gemm_sms
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

PREFILL, DECODE = 100, 32
KNOWN, UNKNOWN = (6144, 4096), (512, 4096)
SMS = {100, 98, 96, 80, 32, 8}


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

    def fp8_gemm_nt(self, x, weights, *rest, **named):
        self.launched.append((self.sms, rest, named))
        if rest == ("fails",):
            raise RuntimeError("as a kernel may")


def values(*shape):
    return SimpleNamespace(shape=shape), "scales"


def told(library):
    return [sms for sms, *_ in library.launched]


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def kernels(library):
    made = PartitionKernels(in_force=None, total_sms=132)
    deep_gemm_sms.tell(made, library, [KNOWN], SMS)
    return made


def test_a_product_is_launched_for_the_partitions_sms_and_the_number_is_put_back(kernels, library):
    with kernels.on(PREFILL):
        library.fp8_gemm_nt(values(4096, 4096), values(*KNOWN), "out", recipe=(1, 128, 128))
        assert library.sms == 132
        with kernels.on(DECODE):
            library.fp8_gemm_nt(values(16, 4096), values(*KNOWN))
    assert library.launched == [(PREFILL, ("out",), {"recipe": (1, 128, 128)}), (DECODE, (), {})]


def test_on_all_sms_it_is_launched_as_ever(kernels, library):
    library.fp8_gemm_nt(values(16, 4096), values(*KNOWN))
    with kernels.on(132):
        library.fp8_gemm_nt(values(16, 4096), values(*KNOWN))
    assert told(library) == [132, 132]


def test_the_number_is_put_back_when_a_launch_fails(kernels, library):
    with kernels.on(PREFILL), pytest.raises(RuntimeError):
        library.fp8_gemm_nt(values(16, 4096), values(*KNOWN), "fails")
    assert library.sms == 132
    assert told(library) == [PREFILL]


@pytest.mark.parametrize(
    ("partition", "rows", "launched_for"),
    [(97, 8192, 132), (97, 8, 96), (99, 8192, 98), (96, 128, 96), (96, 129, 132), (8, 1, 8), (80, 512, 132)],
)
def test_long_inputs_are_told_of_more_than_96_sms_alone(kernels, library, partition, rows, launched_for):
    with kernels.on(partition):
        library.fp8_gemm_nt(values(rows, 4096), values(*KNOWN))
    assert told(library) == [launched_for]


@pytest.mark.parametrize(("partition", "weights"), [(PREFILL, UNKNOWN), (116, KNOWN)])
def test_what_has_no_kernels_compiled_ahead_is_launched_for_all_sms(kernels, library, partition, weights):
    with kernels.on(partition):
        library.fp8_gemm_nt(values(16, 4096), values(*weights))
    assert told(library) == [132]


class Linear:
    """As SGLang's layers are."""

    def __init__(self, shape, dtype, block):
        self.weight = SimpleNamespace(shape=shape, dtype=dtype)
        self.quant_method = SimpleNamespace(weight_block_size=block)


class Plain:
    """A layer without a method, such as a norm."""

    weight = SimpleNamespace(shape=(4096,), dtype="torch.bfloat16")


def test_the_products_are_those_of_layers_with_fp8_in_blocks(monkeypatch):
    monkeypatch.setattr(deep_gemm_sms, "sglang", lambda: SimpleNamespace(Linear=Linear))
    fp8 = "torch.float8_e4m3fn"
    layers = [
        Linear(KNOWN, fp8, [128, 128]),
        Linear(KNOWN, fp8, [128, 128]),
        Linear((1, 1), fp8, None),
        Linear((2, 2), fp8, [1, 32]),
        Linear((3, 3), "torch.bfloat16", [128, 128]),
        Plain(),
    ]
    assert deep_gemm_sms.fp8_shapes(SimpleNamespace(modules=lambda: iter(layers))) == {KNOWN}
