"""Speed of mixed precision on a device, and the share of bits that it changes.

python benchmarks/precision.py                       everything on the CPU, a minute on two cores
python benchmarks/precision.py --only bits           some of: forward, train, bits
PROXYHASH_DEVICE=cuda python benchmarks/precision.py   on a GPU
"""

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from proxyhash.data import load_dataset
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import get_transform
from proxyhash.methods import TrainingData, build_method
from proxyhash.models.backbones import create_backbone
from proxyhash.models.device import find_device
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
from proxyhash.models.precision import Precision, autocast
from proxyhash.models.torch_backend import TorchBackend
from reporting import Row, options_of, run

DEVICE = torch.device(find_device(os.environ.get("PROXYHASH_DEVICE", "cpu")))
LOW: tuple[Precision, ...] = ("bfloat16",) if DEVICE.type == "cpu" else ("bfloat16", "float16")
BITS, CLASSES, REPEATS = 64, 10, 5
FORWARD_BATCH, FORWARD_SIZE = 16, 224
TRAIN_BATCH, TRAIN_SIZE = 32, 96
CODED_IMAGES = 256


def forward_rows() -> Iterator[Row]:
    network = _network().to(DEVICE)
    pixels = np.random.default_rng(0).uniform(0, 255, (FORWARD_BATCH, 3, FORWARD_SIZE, FORWARD_SIZE)).astype(np.float32)

    def work(precision: Precision) -> Callable[[], object]:
        backend = TorchBackend(network, precision)
        return lambda: backend(pixels)

    yield from _compared(f"encoding, lite0 at {FORWARD_SIZE}", FORWARD_BATCH, work)


def train_rows() -> Iterator[Row]:
    network = _network().to(DEVICE).train()
    data = TrainingData.from_arrays(BITS, None, np.arange(TRAIN_BATCH) % CLASSES)
    method = build_method("hclm", data, {}).to(DEVICE)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    images = torch.rand(TRAIN_BATCH, 3, TRAIN_SIZE, TRAIN_SIZE, device=DEVICE) * 255
    images = images.contiguous(memory_format=torch.channels_last)
    targets = torch.arange(TRAIN_BATCH, device=DEVICE) % CLASSES

    def work(precision: Precision) -> Callable[[], object]:
        def step() -> float:
            with autocast(DEVICE, precision):
                embeddings = network(images)
            loss = method(embeddings.float(), targets, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return float(loss.detach())  # waits for the device

        return step

    yield from _compared(f"training, lite0 at {TRAIN_SIZE}", TRAIN_BATCH, work)


def bits_rows() -> Iterator[Row]:
    """Compare codes of digits, by a pretrained network and a random head, whose embeddings are often near zero."""
    digits = load_dataset("digits")
    batch = next(load_batches(digits.images, [np.arange(CODED_IMAGES)], get_transform("small", FORWARD_SIZE)))
    pixels, network = batch.images, _network()
    expected = TorchBackend(network)(pixels)
    network.to(DEVICE)
    for precision in ("float32", *LOW):
        begin = time.perf_counter()
        found = TorchBackend(network, precision)(pixels)
        share = 100 * float(((found >= 0) != (expected >= 0)).mean())
        note = f"largest difference of an embedding {np.abs(found - expected).max():.2g}"
        seconds = time.perf_counter() - begin
        yield Row(f"digits, {precision}: % of bits that differ from the CPU's", share, "", True, seconds, note=note)


def _network() -> HashNetwork:
    torch.manual_seed(0)
    network = HashNetwork(create_backbone("efficientnet_lite0"), HashHead(HeadConfig(1280, BITS))).eval()
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _compared(name: str, images: int, work: Callable[[Precision], Callable[[], object]]) -> Iterator[Row]:
    """Yield the speed of each precision over float32, measured in alternation, so that other load affects both."""
    precisions: tuple[Precision, ...] = ("float32", *LOW)
    jobs = {precision: work(precision) for precision in precisions}
    for job in jobs.values():
        job()  # warm up
    times: dict[str, list[float]] = {precision: [] for precision in precisions}
    for _ in range(REPEATS):
        for precision, job in jobs.items():
            begin = time.perf_counter()
            job()
            times[precision].append(time.perf_counter() - begin)
    best = {precision: min(found) for precision, found in times.items()}
    for precision in LOW:
        note = f"{images / best[precision]:,.0f} and {images / best['float32']:,.0f} images/s on {DEVICE}"
        gain = best["float32"] / best[precision]
        yield Row(f"{name}: {precision} over float32", gain, "", True, best[precision], note=note)


def main() -> None:
    sections = {"forward": forward_rows, "train": train_rows, "bits": bits_rows}
    run("Mixed precision against float32", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
