"""The engine's own command line, and what is checked before SGLang is imported."""

import ctypes
import json
import os
import socket
import stat
from importlib import metadata

import pytest

from pdmuxd.engine.core.errors import EngineError, SettingsError
from pdmuxd.engine.core.partitions import SmRules, even_steps
from pdmuxd.engine.sglang.api.versions import RANGE, TESTED
from pdmuxd.engine.sglang.launch import checks, parent
from pdmuxd.engine.sglang.launch.arguments import parse
from pdmuxd.engine.sglang.launch.checks import check_environment, check_listening, check_model, check_tp_size
from pdmuxd.engine.sglang.launch.groups import find_device, write_groups_file
from pdmuxd.engine.sglang.partition_tables import write_splits


def test_sglangs_flags_stand_behind_two_hyphens_when_there_are_any():
    found = parse(["--model", "/models/m/", "--policy", "muxwise", "--", "--device", "cpu", "--", "x"])
    assert (found.model, found.served_model, found.policy) == ("/models/m/", "m", "muxwise")
    assert found.extra == ("--device", "cpu", "--", "x")
    assert parse(["--model", "org/name"]).served_model == "name"


def test_partitions_are_read_as_they_are_written():
    splits = even_steps(SmRules(total_sms=132)).splits
    found = parse(["--model", "m", "--partitions", write_splits(splits)])
    assert found.partitions == tuple((split.prefill_sms, split.decode_sms) for split in splits)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "m", "--port", "0"], "'0' is not a port; allowed are 1 to 65535"),
        (["--model", "m", "--tp-size", "0"], "'0' is not a number of GPUs; allowed are 1 to 64"),
        (["--model", "m", "--partitions", "96"], "'96' is not PREFILL_SMS,DECODE_SMS, such as 96,36"),
        (["--model", "m", "--device", "cpu"], "unrecognized arguments: --device cpu"),
        ([], "the following arguments are required: --model"),
    ],
)
def test_one_line_says_what_is_wrong_when_an_argument_is(words, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        parse(words)
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_the_file_and_the_flag_agree_when_groups_are_written(tmp_path):
    table = even_steps(SmRules(total_sms=132))
    path = tmp_path / "groups.yaml"
    groups = write_groups_file(path, table)
    written = json.loads(path.read_text())
    assert written["sm_group_num"] == groups == len(table.groups)
    assert len(written["manual_divisions"]) == groups - 2
    assert written["manual_divisions"][0] == [112, 20, 1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_groups_file(path, table)


def test_an_address_is_refused_when_it_is_taken_or_open_to_all():
    with socket.create_server(("127.0.0.1", 0)) as timing:
        port = timing.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
            check_listening("127.0.0.1", port, key="k")
    check_listening("127.0.0.1", port, key=None)
    with pytest.raises(SettingsError, match="needs an API key to listen on 0"):
        check_listening("0.0.0.0", port, key=None)


def test_a_model_is_refused_when_no_folder_of_it_is_there(tmp_path):
    for name in (str(tmp_path / "none"), "./none", "none", "a/b/c"):
        with pytest.raises(SettingsError, match="there is no model folder"):
            check_model(name)
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is a file; allowed is a model's folder"):
        check_model(str(tmp_path / "file"))
    check_model("org/name")


@pytest.mark.parametrize("text", ["", "[1]", '{"architectures": ["', '{"a":' * 3000 + "1" + "}" * 3000])
def test_a_model_is_refused_when_its_configuration_cannot_be_read(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SettingsError, match=r"config\.json is no JSON object that can be read"):
        check_model(str(tmp_path))


@pytest.mark.parametrize("name", ["BertModel", "LlamaForSequenceClassification", "Qwen3ForRewardModel"])
def test_a_model_is_refused_when_it_generates_nothing(tmp_path, name):
    (tmp_path / "config.json").write_text(f'{{"architectures": ["{name}"]}}')
    with pytest.raises(SettingsError, match=f"is of class {name}, which generates no tokens"):
        check_model(str(tmp_path))


def test_a_tensor_parallel_size_is_refused_when_it_does_not_fit(tmp_path):
    (tmp_path / "config.json").write_text('{"num_attention_heads": 12}')
    check_tp_size(str(tmp_path), 4, gpus=4)
    check_tp_size("org/name", 5, gpus=None)
    with pytest.raises(
        SettingsError, match=r"12 attention heads and 12 KV heads; allowed are 1, 2, 3, 4, 6, 12$"
    ):
        check_tp_size(str(tmp_path), 5, gpus=None)
    (tmp_path / "config.json").write_text('{"num_attention_heads": 12, "num_key_value_heads": 4}')
    check_tp_size(str(tmp_path), 12, gpus=None)
    with pytest.raises(SettingsError, match=r"12 attention heads and 4 KV heads; allowed are 1, 2, 4, 12$"):
        check_tp_size(str(tmp_path), 3, gpus=None)
    (tmp_path / "config.json").write_text('{"num_attention_heads": "many"}')
    check_tp_size(str(tmp_path), 3, gpus=None)
    with pytest.raises(SettingsError, match="of 4 needs as many GPUs; here are 2"):
        check_tp_size(str(tmp_path), 4, gpus=2)


def test_an_environment_is_refused_when_sglang_is_not_there():
    with pytest.raises(SettingsError, match=rf"SGLang is not installed in this Python.*{RANGE}"):
        check_environment()


def test_an_environment_is_refused_when_its_sglang_is_not_supported(monkeypatch):
    monkeypatch.setattr(metadata, "version", {"sglang": "0.5.9"}.__getitem__)
    with pytest.raises(SettingsError, match=rf"SGLang 0.5.9 is installed; .* {RANGE} only"):
        check_environment()


def test_an_environment_is_refused_when_it_lacks_greenlet(monkeypatch):
    monkeypatch.setattr(metadata, "version", {"sglang": TESTED[-1]}.__getitem__)
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(
        SettingsError, match=r"^greenlet is not installed in this Python; install pdmuxd\[sglang\],"
    ):
        check_environment()
    monkeypatch.setattr(checks, "find_spec", lambda name: name)
    assert check_environment() == TESTED[-1]


def test_a_process_is_not_watched_when_it_is_not_the_parent():
    said = f"--parent-pid is {os.getpid()}, but the parent process is {os.getppid()}"
    with pytest.raises(EngineError, match=said):
        parent.watch(os.getpid(), None)


class FakeDriver:
    """libcuda as far as `find_device` asks it."""

    def __init__(self, *, init=0, names=(), green=True):
        self._init, self._names = init, dict(names)
        if green:
            self.cuGreenCtxCreate = None

    def cuInit(self, flags):  # noqa: N802 - CUDA's name
        return self._init

    def cuDeviceGet(self, device, ordinal):  # noqa: N802
        return 0

    def cuGetErrorName(self, status, name):  # noqa: N802
        if status not in self._names:
            return 1
        name._obj.value = self._names[status]
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):  # noqa: N802
        value._obj.value = {16: 132, 75: 9}[attribute]
        return 0

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDeviceTotalMem_v2(self, memory, device):  # noqa: N802
        memory._obj.value = 80_000_000_000
        return 0


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (None, r"there is no GPU here: its driver \(libcuda.so.1\) is not installed$"),
        (FakeDriver(init=100), "there is no GPU here: its driver finds none$"),
        (
            FakeDriver(init=803, names={803: b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}),
            "the GPU's driver cannot be used: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH$",
        ),
        (FakeDriver(init=999), "the GPU's driver cannot be used: error 999$"),
        (FakeDriver(green=False), "the GPU's driver has no green contexts; .* needs a driver for CUDA 12.4$"),
    ],
)
def test_one_line_says_why_there_is_no_gpu_to_serve_on(monkeypatch, driver, says):
    def load(name):
        if driver is None:
            raise OSError(name)
        return driver

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(EngineError, match=says):
        find_device(on_cpu=False)


def test_the_device_is_described_when_the_driver_has_green_contexts(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    device = find_device(on_cpu=False)
    assert (device.rules, device.gpus, device.memory_bytes) == (SmRules(total_sms=132), 2, 80_000_000_000)
