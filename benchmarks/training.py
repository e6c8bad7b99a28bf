"""Speed of encoding, overhead of the trainer over a bare loop, and memory of both.

python benchmarks/training.py                      everything, a few minutes on two cores
python benchmarks/training.py --only encode,cache  some of: encode, finetune, cache
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proxyhash.data import ArrayImages, Dataset
from proxyhash.data.transforms import get_transform
from proxyhash.methods import TrainingData, build_method
from proxyhash.models.backbones import create_backbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig, NormalizedBackbone
from proxyhash.models.onnx_backend import OnnxBackend
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import FeatureSource, ImageSource
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import Trainer, TrainSubset
from proxyhash.utils.memory import keep_freed_memory
from proxyhash.utils.parallel import available_threads
from reporting import Row, options_of, run, timed

BATCH, SIZE, STEPS = 128, 96, 6
BITS, CLASSES = 32, 100
CACHED = 60_000


def encode_rows() -> Iterator[Row]:
    torch.manual_seed(0)
    network = HashNetwork(create_backbone("efficientnet_lite0"), HashHead(HeadConfig(1280, BITS))).eval()
    pixels = np.random.default_rng(0).uniform(0, 255, (32, 3, 224, 224)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(network, Path(folder) / "model.onnx", 224)
        eager, onnx = TorchBackend(network), OnnxBackend(Path(folder) / "model.onnx")
        eager(pixels), onnx(pixels)  # warm up
        # Measured in alternation, so that other load affects both.
        times = [(timed(eager, pixels)[1], timed(onnx, pixels)[1]) for _ in range(5)]
    slow, fast = (min(column) for column in zip(*times, strict=True))
    note = f"{len(pixels) / fast:,.0f} and {len(pixels) / slow:,.0f} images/s, {available_threads()} threads"
    yield Row("encoding, lite0 at 224: onnxruntime over torch", slow / fast, ">= 3", slow / fast >= 3, fast, note=note)


def finetune_rows() -> Iterator[Row]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # a separate process, to measure its peak memory
        whole, bare, gib = pool.apply(_finetune)
    share = 100 * (whole / bare - 1)
    note = f"{STEPS} steps, {BATCH * STEPS / whole:.0f} images/s"
    yield Row(f"trainer over bare loop, lite0 at {SIZE}: % more", share, "< 5", share < 5, whole, note=note)
    yield Row(f"fine-tuning, lite0 at {SIZE}, batch {BATCH}: GiB at peak", gib, "< 6", gib < 6, whole)


def _finetune() -> tuple[float, float, float]:
    """Return the seconds of an epoch, the seconds in forward, loss, backward and step, and the peak memory in GiB."""
    keep_freed_memory()  # as `train_hashers` does
    random = np.random.default_rng(0)
    images = ArrayImages(random.integers(0, 256, (BATCH * STEPS, 32, 32, 3), dtype=np.uint8))
    labels = np.arange(len(images)) % CLASSES
    objective = build_method("random", TrainingData.from_arrays(BITS, None, labels), {})
    plan = OptimConfig.finetune(epochs=1, batch_size=BATCH)
    learner = MultiHeadModel(
        NormalizedBackbone(create_backbone("efficientnet_lite0")), [HashHead(HeadConfig(1280, BITS))], [objective]
    )
    learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with tempfile.TemporaryDirectory() as folder:
        source = ImageSource(images, get_transform("small", SIZE), OptimConfig())
        trainer = Trainer(
            learner, plan, source, TrainSubset(np.arange(len(images)), labels), CheckpointManager(Path(folder))
        )
        clock = _Clock()
        for owner, name in (
            (learner, "forward"),
            (learner, "loss"),
            (torch.Tensor, "backward"),
            (torch.optim.AdamW, "step"),
        ):
            setattr(owner, name, clock.around(getattr(owner, name)))
        seconds: list[float] = []
        usual = trainer._train_epoch
        trainer._train_epoch = lambda *given: seconds.append(timed(usual, *given)[1])  # type: ignore[method-assign]
        trainer.fit()
    return seconds[0], clock.seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class _Clock:
    """Sum of the time spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed_function(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.seconds += time.perf_counter() - begun

        return timed_function


def cache_rows() -> Iterator[Row]:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        with spawn.Pool(1) as pool:
            _, seconds, file = pool.apply(_use_cache, (folder,))
        with spawn.Pool(1) as pool:
            growth, again, file = pool.apply(_use_cache, (folder,))
    note = f"{file:.0f} MB on disk, read {file / max(again, 1e-9):,.0f} MB/s; computed in {seconds:.1f} s"
    yield Row("cached features, an epoch's batches: MB copied", growth, "< 6", growth < 6, again, note=note)


def _use_cache(folder: str) -> tuple[float, float, float]:
    """Return the growth of private memory in MB, the seconds, and the size of the file in MB."""
    dataset = Dataset("black", ArrayImages(np.zeros((CACHED, 8, 8, 3), np.uint8)))
    backbone, transform = create_backbone("convnet", pretrained=False).eval(), get_transform("small", 8)
    batches = np.array_split(np.random.default_rng(0).permutation(CACHED), CACHED // 256)

    def epoch() -> float:
        features = cached_features(dataset, backbone, transform, folder=Path(folder))
        for batch in FeatureSource(features.values).train_batches(batches, 0):
            batch.sum()
        return features.values.nbytes / 1e6

    before = _own_memory()
    file, seconds = timed(epoch)
    return _own_memory() - before, seconds, file


def _own_memory() -> float:
    """Return the private memory of this process in MB, without mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024 / 1e6


def main() -> None:
    sections = {"encode": encode_rows, "finetune": finetune_rows, "cache": cache_rows}
    options = options_of(__doc__, list(sections))
    run("Training and encoding against their targets", sections, options)


if __name__ == "__main__":
    main()
