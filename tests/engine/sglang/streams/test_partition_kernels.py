"""What launches on a partition are made for, and what is kept of it for the next start."""

import pytest

from pdmuxd.engine.sglang.streams.gemm import CUBLASLT, WHOLE_DEVICE, Gemm, GemmChoices
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels, keep_choices, read_choices

QKV = (6144, 4096)
DEVICE = {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}


class FakeInForce:
    """Counts what is set; PyTorch's own is the process's."""

    def __init__(self):
        self.in_force = WHOLE_DEVICE

    def put(self, gemm):
        self.in_force = gemm


@pytest.fixture
def kernels():
    made = PartitionKernels(FakeInForce(), 132)
    made.choices.keep(112, QKV, 64, Gemm(CUBLASLT, 112))
    return made


def test_products_are_as_ever_outside_of_partitions(kernels):
    assert kernels.fastest(QKV, 64) == WHOLE_DEVICE
    assert kernels.sm_margin == 0
    with kernels.on(132):
        assert kernels.sms is None
    with kernels.on(0):  # the decode stream of the group that gives prefill everything
        assert kernels.sms is None


def test_products_and_attention_are_made_for_the_partition_inside(kernels):
    with kernels.on(112):
        assert kernels.fastest(QKV, 60) == Gemm(CUBLASLT, 112)
        assert kernels.fastest((1, 1), 60) == WHOLE_DEVICE
        assert kernels.sm_margin == 20
        with kernels.on(20):
            assert kernels.sm_margin == 112
        assert kernels.sm_margin == 20
    assert kernels.sm_margin == 0


def test_the_partition_is_left_when_a_launch_fails(kernels):
    with pytest.raises(RuntimeError), kernels.on(112):
        raise RuntimeError
    assert kernels.sms is None


def test_putting_a_choice_in_force_says_what_was(kernels):
    before = kernels.put(Gemm(CUBLASLT, 112))
    assert before == WHOLE_DEVICE
    assert kernels.put(before) == Gemm(CUBLASLT, 112)


def test_choices_are_found_again_by_the_same_device(tmp_path, kernels):
    file = tmp_path / "kernels.json"
    keep_choices(file, DEVICE, kernels.choices)
    assert read_choices(file, DEVICE).to_json() == kernels.choices.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.json"]


def test_choices_of_another_device_are_not_taken(tmp_path, kernels, caplog):
    file = tmp_path / "kernels.json"
    keep_choices(file, DEVICE, kernels.choices)
    with caplog.at_level("INFO"):
        assert read_choices(file, DEVICE | {"pytorch": "2.15"}).count() == 0
    assert "another device or PyTorch" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"device": {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}}',
        '{"device": {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}, "fastest": []}',
        '{"device": {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}, "fastest": {"112:1x1": {"x": "cublas"}}}',
        '{"device": {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}, "fastest": {"112": {"1": "cublas"}}}',
        '{"device": {"gpu": "NVIDIA H200", "pytorch": "2.14.1"}, "fastest": {"112:1x1": {"1": "mkl"}}}',
    ],
)
def test_a_file_that_cannot_be_used_is_said_and_timed_again(tmp_path, caplog, text):
    file = tmp_path / "kernels.json"
    file.write_text(text)
    assert read_choices(file, DEVICE).count() == 0
    assert str(file) in caplog.text


def test_no_file_is_no_complaint(tmp_path, caplog):
    assert read_choices(tmp_path / "none.json", DEVICE).count() == 0
    assert not caplog.text


def test_a_folder_that_cannot_be_written_costs_no_start(tmp_path, caplog):
    keep_choices(tmp_path / "none" / "kernels.json", DEVICE, GemmChoices())
    assert "are not kept" in caplog.text
