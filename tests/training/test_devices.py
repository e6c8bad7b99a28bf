"""Training and encoding on a device that is not the CPU; `helpers.fake_gpu` stands for it, as there is no GPU here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.fake_gpu import DEVICE, FakeGpu, GpuTensor, MixedDevicesError
from helpers.method_losses import BITS, COUNT, FEATURES, NAMES, embeddings, small_data, targets
from helpers.small_training import STEPS, small_trainer
from proxyhash.methods import build_method, get_method, list_methods
from proxyhash.models.backbones import create_backbone
from proxyhash.models.heads import HeadConfig
from proxyhash.models.network import HashHead, HashNetwork
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.training import trainer as trainer_module
from proxyhash.training.checkpoint import CheckpointManager

TRAINS = list_methods(trains=True)


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    with FakeGpu() as found:
        yield found


def test_fake_gpu_refuses_mixed_devices_and_records_copies(gpu: FakeGpu) -> None:
    there = torch.ones(3).to(DEVICE)
    assert (there * 2 + torch.tensor(1.0)).device == DEVICE  # one number of the CPU is allowed
    assert torch.zeros(2, device=there.device).device == DEVICE
    with pytest.raises(MixedDevicesError, match="add got tensors on cuda:0 and on the CPU"):
        torch.add(there, torch.ones(3))
    with pytest.raises(MixedDevicesError):
        torch.nn.functional.mse_loss(there, torch.ones(3))
    assert there.sum().item() == 3.0
    assert type(there.cpu()) is torch.Tensor
    assert there.tolist() == [1.0, 1.0, 1.0]
    assert gpu.copies == ["item", "cpu", "tolist"]
    assert (gpu.pinned, gpu.unpinned) == (0, 1)
    torch.ones(3).pin_memory().to(DEVICE, non_blocking=True)
    assert gpu.pinned == 1


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("kind", ["classes", "tags"])
@pytest.mark.parametrize("name", TRAINS)
def test_loss_of_every_method_stays_on_the_device(name: str, kind: str, gpu: FakeGpu) -> None:
    if kind == "tags" and get_method(name).learns_from == "classes":
        pytest.skip("for classes only")
    made = build_method(name, small_data(kind), {})
    head = made.build_head(HeadConfig(6, BITS))
    features = torch.from_numpy(FEATURES)
    nu = embeddings() if head.metric == "hamming" else head(features)
    expected = made(nu, targets(kind), torch.arange(COUNT)).item()
    made, head = made.to(DEVICE), head.to(DEVICE)
    outputs = nu.detach().to(DEVICE).requires_grad_()
    batch = targets(kind).to(DEVICE), torch.arange(COUNT).to(DEVICE)
    loss = made(outputs, *batch)
    made(head(features.to(DEVICE)), *batch).backward()
    scores = made.scores(outputs)
    assert bool(gpu.copies) == made.waits_for_device
    assert isinstance(loss, GpuTensor)
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert scores is None or (isinstance(scores, GpuTensor) and scores.shape == (COUNT, len(NAMES)))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    made.on_epoch_end(nu.detach, head)  # embeddings of an epoch are on the CPU
    assert all(isinstance(buffer, GpuTensor) for buffer in made.buffers())
    assert torch.isfinite(made(outputs, *batch)).item()


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("finetune", [False, True])
def test_training_loop_copies_no_number_to_the_cpu_in_a_step(
    finetune: bool, precision: str, ema_decay: float, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointManager, "save", lambda *_: None)
    rates: dict[str, Any] = {"backbone_lr": 2e-3, "hidden_dim": 0} if finetune else {}
    trainer = small_trainer(tmp_path, finetune=finetune, ema_decay=ema_decay, **rates)
    trainer.device, trainer.precision, trainer.validate = DEVICE, precision, None  # type: ignore[assignment]
    model = trainer.fit()
    assert all(isinstance(parameter, GpuTensor) for parameter in model.parameters())
    steps_recorded_by_the_helper = ["__float__"] * STEPS
    assert sorted(gpu.copies) == sorted([*steps_recorded_by_the_helper, *["tolist"] * 3])  # three epochs
    assert gpu.unpinned == sum(1 for tensor in [*model.parameters(), *model.buffers()] if tensor.numel() > 1)
    assert gpu.pinned == 3 * STEPS  # inputs, targets and indices


def test_loss_is_read_in_groups_and_before_checkpoints(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(trainer_module, "STEPS_PER_READ", 2)
    trainer = small_trainer(tmp_path / "gpu")
    trainer.device, trainer.precision, trainer.validate = DEVICE, "float32", None
    trainer.checkpoints = CheckpointManager(tmp_path, can_write=False)
    trainer.progress = lambda text, _: shown.append(text.split(",")[0])
    reported: list[float] = []
    trainer.report = lambda metrics: reported.append(metrics["loss"])
    trainer.fit()
    assert gpu.copies.count("tolist") == 3 * 3  # of five steps: two, two, one
    assert shown[0] == "training: first steps"
    assert shown[1] == shown[2] == f"training: loss {np.mean(trainer.losses[:2]):.3f}"
    expected = small_trainer(tmp_path / "cpu")
    expected.validate = None
    expected.fit()
    assert reported == pytest.approx([np.mean(expected.losses[first : first + 5]) for first in (0, 5, 10)], rel=1e-6)


def test_loss_that_is_not_finite_stops_before_a_checkpoint(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = small_trainer(tmp_path, checkpoint_seconds=1e-9)
    trainer.device, trainer.precision, trainer.validate = DEVICE, "float32", None
    saved: list[int] = []
    monkeypatch.setattr(CheckpointManager, "save", lambda _, state: saved.append(state.progress.step))
    usual = trainer.model.loss
    trainer.model.loss = lambda *given: usual(*given) * (torch.nan if len(trainer.losses) == 3 else 1)  # type: ignore[method-assign]
    with pytest.raises(trainer_module.TrainingStoppedError, match="The loss became nan"):
        trainer.fit()
    assert saved == [0, 1, 2, 3]
    assert gpu.copies


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_encoding_copies_once_for_each_batch(precision: str, gpu: FakeGpu) -> None:
    network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, 16)))
    pixels = np.random.default_rng(0).uniform(0, 255, (5, 3, 16, 16)).astype(np.float32)
    expected = TorchBackend(network)(pixels)
    backend = TorchBackend(network.to(DEVICE), precision)  # type: ignore[arg-type]
    found = [backend(pixels) for _ in range(3)]
    assert gpu.copies.count("cpu") == 3
    assert set(gpu.copies) <= {"cpu", "numpy"}
    assert gpu.pinned == 3
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], expected, atol=1e-6 if precision == "float32" else 0.05)
