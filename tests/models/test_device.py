"""Names of devices, and the precision of training on them. The devices themselves are not here."""

import subprocess
import sys
from importlib import metadata

import pytest
import torch

from proxyhash.cli.app import app, main
from proxyhash.index import Index
from proxyhash.models import device as device_module
from proxyhash.models.device import can_have_gpu, check_device_name, find_device
from proxyhash.models.precision import training_precision
from proxyhash.training.config import TrainConfig
from proxyhash.training.train import _find_device
from proxyhash.utils.distributed import DistributedContext
from proxyhash.utils.errors import InputError

COMPUTING = (
    "train",
    "fit",
    "encode",
    "evaluate model",
    "evaluate vectors",
    "benchmark",
    "tune",
    "reproduce",
    "index add",
    "index upgrade",
    "index calibrate",
    "search",
    "serve",
    "quickstart",
    "doctor",
)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch say that it has two GPUs."""
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0")
    monkeypatch.setattr(device_module, "_GPU_DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "zeros", _zeros)


def _zeros(_: int, device: str) -> None:
    if device not in ("cpu", "cuda", "cuda:0", "cuda:1", "mps"):
        raise RuntimeError(f"no {device}")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:1234", "", "CPU", "meta", "cuda:1 "])
def test_unknown_name_is_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=r"There is no device .*; choose auto, cpu, cuda, cuda:1 or mps\.$"):
        find_device(name)
    with pytest.raises(InputError, match="There is no device"):
        TrainConfig(device=name or "x")


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps"])
def test_device_that_is_not_here_is_one_sentence(name: str) -> None:
    assert check_device_name(name) == name
    with pytest.raises(InputError, match=f"There is no device {name} here; try cpu."):
        find_device(name)


def test_auto_and_cpu_do_not_import_torch_without_a_gpu() -> None:
    code = "import sys; from proxyhash.models.device import find_device as f; print(f('cpu'), f('auto'), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:2] == ["cpu", "cpu"]
    assert "torch" not in done.stdout.split()


@pytest.mark.usefixtures("gpus")
def test_auto_prefers_cuda_then_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("auto") == find_device() == "cuda"
    assert find_device("cuda:1") == "cuda:1"
    with pytest.raises(InputError, match="There is no device cuda:7 here"):
        find_device("cuda:7")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto") == "mps"
    monkeypatch.setenv("WORLD_SIZE", "2")  # processes cannot exchange tensors on mps
    assert find_device("auto") == "cpu"


@pytest.mark.usefixtures("gpus")
def test_each_process_of_torchrun_gets_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    found = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found.append(find_device("auto"))
    assert found == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert str(_find_device(TrainConfig(device="cuda"), DistributedContext(3, 4))) == "cuda:1"
    with pytest.raises(InputError, match="a GPU of its own, not all on cuda:1: use --device cuda"):
        _find_device(TrainConfig(device="cuda:1"), DistributedContext(0, 4))


@pytest.mark.parametrize(
    ("platform", "machine", "version", "expected"),
    [
        ("linux", "x86_64", "2.13.0+cpu", False),
        ("linux", "x86_64", "2.13.0", False),  # no driver
        ("darwin", "arm64", "2.13.0", True),
        ("darwin", "x86_64", "2.13.0", False),
        ("win32", "AMD64", "2.13.0", True),
        ("win32", "AMD64", "2.13.0+cpu", False),
    ],
)
def test_gpu_is_ruled_out_without_torch(
    platform: str, machine: str, version: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_GPU_DRIVERS", ("/dev/no-such-driver",))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(metadata, "version", lambda _: version)
    assert can_have_gpu() is expected


@pytest.mark.parametrize("command", COMPUTING)
def test_every_command_that_computes_chooses_a_device_by_itself_unless_told_otherwise(command: str) -> None:
    found = app
    for name in command.split():
        found = found[name]
    options = {name: option for option in found.assemble_argument_collection() for name in option.names}
    default = options["--device"].field_info.default
    # A file of settings may name a device for `train`; `doctor` checks a device only if one is named.
    assert default == (None if command in ("train", "doctor") else "auto")


def test_search_encodes_on_the_cpu_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_index(*_: object, device: str, **__: object) -> Index:
        opened.append(device)
        raise InputError("far enough")

    monkeypatch.setattr(Index, "open", open_index)
    for options in ([], ["--device", "auto"], ["--device", "cuda:1"]):
        with pytest.raises(SystemExit):
            main(["search", "photos.index", "query.jpg", *options])
    with pytest.raises(SystemExit):
        main(["index", "add", "photos", "--index", "photos.index"])
    assert opened == ["cpu", "cpu", "cuda:1", "auto"]


def test_bad_name_on_the_command_line_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["search", "photos.index", "query.jpg", "--device", "gpu"])
    assert stop.value.code == 2
    assert "There is no device gpu; choose auto, cpu, cuda, cuda:1 or mps." in capsys.readouterr().err


def test_precision_depends_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert training_precision(cuda) == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert training_precision(cuda) == "float16"
    assert training_precision(cuda, "float32") == "float32"
    assert training_precision(torch.device("cpu")) == training_precision(torch.device("mps")) == "float32"
    assert training_precision(torch.device("cpu"), "bfloat16") == "bfloat16"
    with pytest.raises(InputError, match="There is no precision double; choose float32, bfloat16, float16"):
        TrainConfig(precision="double")  # type: ignore[arg-type]


def test_precision_is_recorded_only_if_it_is_given() -> None:
    assert "precision" not in TrainConfig().weight_settings()
    assert TrainConfig(precision="bfloat16").weight_settings()["precision"] == "bfloat16"
    with pytest.raises(InputError, match="ITQ trains no network, so precision has no effect"):
        TrainConfig(method="itq", precision="bfloat16")
