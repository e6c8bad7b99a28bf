"""The self-check of `proxyhash doctor --device`, on the CPU and on a GPU that is only pretended."""

import json

import pytest
import torch

from helpers.fake_gpu import DEVICE, FakeGpu
from proxyhash.cli.app import main
from proxyhash.training import self_check
from proxyhash.training.self_check import run_self_check
from proxyhash.utils.errors import InputError


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    for name, value in (("SPEED_SIDE", 32), ("SPEED_IMAGES", 2)):
        monkeypatch.setattr(self_check, name, value)


def test_check_of_the_cpu_finds_no_difference(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--device", "cpu", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["device"] == "cpu"
    assert report["map"] == report["cpu_map"] > 0.9
    assert report["bits_differ"]["float32"] == report["embeddings_differ"]["float32"] == 0
    assert 0 < report["bits_differ"]["bfloat16"] < 0.02
    assert report["losses"] > 20
    assert report["versions"]["torch"] == torch.__version__
    assert report["images_per_second"]["cpu"] > 0


def test_failed_check_is_a_sentence_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_check, "MAX_BITS_DIFFER", {"float32": -1.0})
    monkeypatch.setattr(self_check, "MAX_LOST_MAP", -1.0)
    monkeypatch.setattr(self_check, "list_methods", lambda trains: ["dpsh", "csq"][: 1 + trains])
    monkeypatch.setattr(self_check, "_loss", _failing_loss)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--device", "cpu"])
    assert stop.value.code == 1
    out = capsys.readouterr().out
    assert "0.00 % of the bits differ from those of the CPU in float32." in out
    assert "Training on cpu reached an mAP of" in out
    assert out.count("An error stopped the loss of") == 2
    assert "attach this table to an issue" in out


def _failing_loss(*_: object) -> float:
    raise NotImplementedError("The operator 'aten::cdist' is not implemented.")


def test_check_runs_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "find_device", lambda _: str(DEVICE))
    monkeypatch.setattr(self_check, "describe_device", lambda _: ("pretended", 8.0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    with FakeGpu():
        report = run_self_check("cuda")
    assert report.problems == []
    assert (report.device, report.precision) == ("cuda:0", "bfloat16")
    assert set(report.images_per_second) == {"cpu", "float32", "bfloat16"}


def test_missing_device_is_one_sentence() -> None:
    with pytest.raises(InputError, match="There is no device cuda here"):
        run_self_check("cuda")
