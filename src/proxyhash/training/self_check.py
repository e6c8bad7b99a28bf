"""Self-check of a device: a tiny network is trained and encodes there, and is compared with the CPU."""

import copy
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from proxyhash.data.images import ArrayImages
from proxyhash.data.transforms import get_transform
from proxyhash.evaluation import mean_average_precision
from proxyhash.methods import TrainingData, build_method, list_methods
from proxyhash.models.backbones import create_backbone
from proxyhash.models.device import find_device
from proxyhash.models.heads import HeadConfig
from proxyhash.models.network import HashHead, HashNetwork, NormalizedBackbone
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.precision import Precision, training_precision
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import ImageSource
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import Trainer, TrainSubset
from proxyhash.utils.environment import machine, versions
from proxyhash.utils.errors import ProxyhashWarning
from proxyhash.utils.progress import Progress, no_progress

SIDE, CLASSES, BITS = 16, 8, 32
TRAIN_IMAGES, QUERY_IMAGES, EPOCHS = 512, 256, 4
SPEED_IMAGES, SPEED_SIDE = 16, 224
MAX_LOST_MAP = 0.1  # of the device against the CPU
MAX_BITS_DIFFER: dict[Precision, float] = {"float32": 0.01, "bfloat16": 0.05, "float16": 0.02}
MAX_LOSS_DIFFERENCE = 1e-2  # relative; a GPU may round products to 11 bits


@dataclass(frozen=True)
class SelfCheckReport:
    """Result of `run_self_check`, for people and as JSON.

    Attributes
    ----------
    device, device_name, memory_gib
        The device as torch names it, its model, and its memory if torch knows it.
    precision
        Precision of training by default.
    map, cpu_map
        mAP of the network that was trained on the device, and on the CPU in float32.
    train_seconds, cpu_train_seconds
        Time of these trainings.
    bits_differ
        Share of the bits that differ from those of the CPU, for each precision of encoding on the device.
    embeddings_differ
        Largest difference of an embedding from that of the CPU, for each precision.
    images_per_second
        Speed of efficientnet_lite0 at 224 pixels, without decoding; "cpu" is torch on the CPU.
    losses
        Number of methods whose loss was computed on the device.
    problems
        One sentence for each check that failed.
    versions, machine
        Packages and machine.
    """

    device: str
    device_name: str
    memory_gib: float | None
    precision: Precision
    map: float
    cpu_map: float
    train_seconds: float
    cpu_train_seconds: float
    bits_differ: dict[str, float]
    embeddings_differ: dict[str, float]
    images_per_second: dict[str, float]
    losses: int
    problems: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=versions)
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def ok(self) -> bool:
        """Return whether every check succeeded."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**asdict(self), "ok": self.ok}


def run_self_check(device: str = "auto", *, progress: Progress = no_progress) -> SelfCheckReport:
    """Train a tiny network on a device, encode with it, and compare with the CPU; it takes less than a minute.

    Parameters
    ----------
    device
        Name of the device, see `find_device`.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    SelfCheckReport

    Raises
    ------
    InputError
        If there is no such device.
    """
    found, cpu = torch.device(find_device(device)), torch.device("cpu")
    problems: list[str] = []
    progress("training on the CPU", 0.0)
    _, cpu_map, cpu_seconds = _train(cpu, "float32")
    progress(f"training on {found}", 0.3)
    precision = training_precision(found)
    network, device_map, seconds = _train(found, precision)
    if not device_map > cpu_map - MAX_LOST_MAP:
        problems.append(f"Training on {found} reached an mAP of {device_map:.3f}, and {cpu_map:.3f} on the CPU.")
    progress("encoding", 0.5)
    shares, differences = _compare_codes(network, found, problems)
    progress("losses", 0.6)
    losses = _compare_losses(found, problems)
    progress("speed", 0.9)
    speed = _measure_speed(found)
    name, memory = describe_device(found)
    return SelfCheckReport(
        str(found),
        name,
        memory,
        precision,
        device_map,
        cpu_map,
        seconds,
        cpu_seconds,
        shares,
        differences,
        speed,
        losses,
        problems,
    )


def describe_device(device: torch.device) -> tuple[str, float | None]:
    """Return the model of a device, and its memory in GiB, None where torch does not know it."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return str(properties.name), round(properties.total_memory / 2**30, 1)
    facts = machine()
    return str(facts["processor"]), facts["memory_gib"] if device.type == "cpu" else None


def _images(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (N, 16, 16, 3) of stripes, a direction and a color for each class, with noise; and their classes."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    y, x = np.mgrid[:SIDE, :SIDE]
    angle = (labels * np.pi / CLASSES)[:, None, None]
    stripes = np.sin(2 * np.pi / 6 * (np.cos(angle) * x + np.sin(angle) * y) + random.uniform(0, 6, (count, 1, 1)))
    color = np.stack([labels % 2, labels // 2 % 2, labels // 4 % 2], 1)[:, None, None, :] * 30.0
    pixels = 110 + 40 * stripes[..., None] + color + random.normal(0, 40, (count, SIDE, SIDE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


def _train(device: torch.device, precision: Precision) -> tuple[HashNetwork, float, float]:
    """Return a network trained on a device, its mAP, and the seconds of its training."""
    pixels, labels = _images(TRAIN_IMAGES, seed=0)
    optim = OptimConfig.finetune(epochs=EPOCHS, batch_size=64, lr=2e-3, backbone_lr=2e-3)
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory(prefix="proxyhash-") as folder:
        torch.manual_seed(0)
        method = build_method("hclm", TrainingData.from_arrays(BITS, None, labels), {})
        backbone = create_backbone("convnet", pretrained=False)
        head = method.build_head(HeadConfig(backbone.config.num_features, BITS))
        trainer = Trainer(
            MultiHeadModel(NormalizedBackbone(backbone), [head], [method]),
            optim,
            ImageSource(ArrayImages(pixels), get_transform("small", SIDE), optim),
            TrainSubset(np.arange(len(pixels)), labels),
            CheckpointManager(Path(folder), can_write=False),
            device=device,
            precision=precision,
        )
        start = time.monotonic()
        trainer.fit()
        seconds = time.monotonic() - start
    network = HashNetwork(backbone, head).cpu().eval()
    query_pixels, query_labels = _images(QUERY_IMAGES, seed=1)
    queries, items = (head.encode(_embed(network, some)) for some in (query_pixels, pixels))
    return network, mean_average_precision(queries, query_labels, items, labels).value, round(seconds, 2)


def _embed(network: HashNetwork, pixels: NDArray[np.uint8], precision: Precision = "float32") -> Floats:
    return TorchBackend(network, precision)(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32))


def _compare_codes(
    network: HashNetwork, device: torch.device, problems: list[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the share of bits, and the largest difference of embeddings, between a device and the CPU."""
    pixels, _ = _images(TRAIN_IMAGES + QUERY_IMAGES, seed=2)
    expected = _embed(network, pixels)
    there = copy.deepcopy(network).to(device)
    shares: dict[str, float] = {}
    differences: dict[str, float] = {}
    for precision, limit in MAX_BITS_DIFFER.items():
        with _noted(f"encoding in {precision} on {device}", problems):
            found = _embed(there, pixels, precision)
            shares[precision] = float(((found >= 0) != (expected >= 0)).mean())
            differences[precision] = float(np.abs(found - expected).max())
            if not shares[precision] <= limit:
                problems.append(f"{100 * shares[precision]:.2f} % of the bits differ from those of the CPU in {precision}.")
    return shares, differences


def _compare_losses(device: torch.device, problems: list[str]) -> int:
    """Compare the loss of every method that trains with the CPU, and return the number of methods."""
    random = np.random.default_rng(0)
    features = random.standard_normal((64, 24)).astype(np.float32)
    data = TrainingData.from_arrays(16, features, np.arange(64) % CLASSES)
    names = list_methods(trains=True)
    for name in names:
        with _noted(f"the loss of {name} on {device}", problems), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            method = build_method(name, data, {})
            head = method.build_head(HeadConfig(features.shape[1], data.bits))
            expected = _loss(method, head, features, torch.device("cpu"))
            found = _loss(method.to(device), head.to(device), features, device)
            if not math.isclose(found, expected, rel_tol=MAX_LOSS_DIFFERENCE, abs_tol=MAX_LOSS_DIFFERENCE):
                problems.append(f"The loss of {name} is {found:.6g} on {device}, and {expected:.6g} on the CPU.")
    return len(names)


def _loss(method: torch.nn.Module, head: torch.nn.Module, features: Floats, device: torch.device) -> float:
    """Return the loss of a batch, after its gradient was computed."""
    targets, indices = torch.arange(len(features)) % CLASSES, torch.arange(len(features))
    torch.manual_seed(1)
    loss: torch.Tensor = method(head(torch.from_numpy(features).to(device)), targets.to(device), indices.to(device))
    loss.backward()
    method.zero_grad()
    head.zero_grad()
    return float(loss.detach())


def _measure_speed(device: torch.device) -> dict[str, float]:
    """Return images per second of efficientnet_lite0 by precision, and of torch on the CPU."""
    network = HashNetwork(create_backbone("efficientnet_lite0", pretrained=False), HashHead(HeadConfig(1280, BITS)))
    pixels = np.random.default_rng(0).uniform(0, 255, (SPEED_IMAGES, 3, SPEED_SIDE, SPEED_SIDE)).astype(np.float32)
    speed = {"cpu": _images_per_second(TorchBackend(network), pixels)}
    if device.type != "cpu":
        network.to(device)
        precisions: tuple[Precision, ...] = ("float32", training_precision(device))
        speed |= {precision: _images_per_second(TorchBackend(network, precision), pixels) for precision in precisions}
    return speed


def _images_per_second(backend: Callable[[Floats], Floats], pixels: Floats) -> float:
    backend(pixels)  # the first batch compiles or selects kernels
    start = time.perf_counter()
    backend(pixels)
    return round(len(pixels) / (time.perf_counter() - start), 1)


@contextmanager
def _noted(work: str, problems: list[str]) -> Iterator[None]:
    """Turn an error of torch, such as an operation that the device lacks, into a problem."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ProxyhashWarning)  # about proxies of tiny data
            yield
    except (RuntimeError, NotImplementedError, TypeError) as error:
        problems.append(f"An error stopped {work}: {' '.join(str(error).split())[:200]}")
