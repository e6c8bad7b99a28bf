"""Time of reading and checking data; each pair of numbers is measured in one run on the same images.

python benchmarks/data.py                   everything, a few minutes on two cores
python benchmarks/data.py --only memory     some of: memory, files, check
"""

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import nn

from proxyhash.data import ArrayImages, FileImages, load_dataset, make_split
from proxyhash.data.checks import check_dataset
from proxyhash.data.decoding import Pixels
from proxyhash.data.images import Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import AugmentParams, draw_augment_params, get_transform
from proxyhash.models.backbones import create_backbone
from proxyhash.utils.parallel import available_threads
from reporting import Row, options_of, run, timed

BATCH = 128
Size = tuple[int, int]
PHOTOGRAPHS: tuple[tuple[Size, int], ...] = (((500, 375), 600), ((1600, 1200), 100))  # as in ImageNet, and of a phone
FILES, CLASSES = 100_000, 100


def network() -> nn.Module:
    return nn.Sequential(create_backbone("efficientnet_lite0", pretrained=False), nn.Linear(1280, 100))


def memory_rows() -> Iterator[Row]:
    """Compare augmented CIFAR batches at 96 pixels with a training step on them."""
    torch.set_num_threads(1)
    pixels = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    images, small = ArrayImages(pixels), get_transform("small", 96)
    order = np.random.default_rng(1).permutation(10_000)[: 60 * BATCH].reshape(-1, BATCH)
    draws = draw_augment_params(len(images), 0, 0)
    read: list[float] = []
    batches = load_batches(images, order, small, augment_params=draws)
    for _ in order:
        read.append(processor_seconds(next, batches))
    model = network()
    step = training_step(model.train())
    (batch,) = load_batches(images, order[:1], small, augment_params=draws)
    steps = [processor_seconds(step, torch.from_numpy(batch.images)) for _ in range(3)]
    share = median(read) / median(steps)
    batch_ms, step_ms = 1000 * median(read), 1000 * median(steps)
    note = f"{batch_ms:.1f} ms a batch of {BATCH}, a step {step_ms:.0f} ms, of one core"
    yield Row("CIFAR batches at 96 pixels: share of a training step", share, "< 0.03", share < 0.03, sum(read), note=note)


def processor_seconds(work: Callable[..., object], *arguments: object) -> float:
    """Return the CPU seconds of one core, which depend less on other load than wall time."""
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def training_step(model: nn.Module) -> Callable[[torch.Tensor], None]:
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    labels = torch.arange(BATCH) % 100

    def step(images: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images / 255), labels).backward()
        optimizer.step()

    return step


def photograph(seed: int, size: Size = (500, 375)) -> Pixels:
    """Return smooth shapes with edges and texture, which compress like a photograph, to about 40 kB."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[1], : size[0]]
    coarse = Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    waves = sum(np.sin(rows * a + columns * b) for a, b in random.uniform(-0.6, 0.6, (6, 2)))
    edges = 30 * ((rows * random.uniform(-1, 1) + columns * random.uniform(-1, 1)) % 90 > 45)
    pixels: Pixels = (np.asarray(coarse) * 0.7 + (9 * waves + edges)[..., None]).clip(0, 255).astype(np.uint8)
    return pixels


def files_rows() -> Iterator[Row]:
    """Compare batches of JPEG files at 224 pixels with Pillow alone on the same number of threads."""
    torch.set_num_threads(1)  # torch needs no threads here; the cores are for the decoders
    for size, count in PHOTOGRAPHS:
        with tempfile.TemporaryDirectory() as folder:
            names = [f"{number}.jpg" for number in range(count)]
            for number, name in enumerate(names):
                Image.fromarray(photograph(number % 50, size)).save(Path(folder) / name, quality=90)
            yield from _file_rows(FileImages(Path(folder), names), size)


def _file_rows(images: FileImages, size: Size) -> Iterator[Row]:
    draws = draw_augment_params(len(images), 0, 0)
    for training in (True, False):
        runs = [_one_run(images, size, draws if training else None) for _ in range(8)][1:]
        ours, decode, resize = (min(run[part] for run in runs) for part in range(3))  # the fastest of each
        use = "training" if training else "testing"
        name = f"JPEG of {size[0]} x {size[1]} at 224 pixels, {use}: over Pillow decoding and scaling"
        note = f"{len(images) / ours:.0f} images/s, Pillow {len(images) / resize:.0f}"
        yield Row(name, resize / ours, ">= 0.9", resize >= 0.9 * ours, ours, note=note)
        note = f"Pillow {len(images) / decode:.0f} images/s; it hands nothing over and scales nothing"
        yield Row("... over Pillow decoding alone", decode / ours, ">= 0.9", decode >= 0.9 * ours, decode, note=note)


def _one_run(images: FileImages, size: Size, draws: AugmentParams | None) -> tuple[float, float, float]:
    """Return the seconds of our batches, of Pillow decoding, and of Pillow decoding and scaling, in this order."""
    order: list[Indices] = np.array_split(np.arange(len(images)), max(1, len(images) // 60))
    paths = [images.path(index) for index in range(len(images))]
    left = (size[0] - size[1]) / 2

    def ours() -> None:
        for _ in load_batches(images, order, get_transform("photo", 224), augment_params=draws):
            pass

    def decode(path: Path) -> Image.Image:
        with Image.open(path) as image:
            return image.convert("RGB")

    def resize(path: Path) -> Image.Image:
        return decode(path).resize((224, 224), Image.Resampling.BILINEAR, box=(left, 0, left + size[1], size[1]))

    def theirs(work: Callable[[Path], Image.Image]) -> None:
        with ThreadPoolExecutor(available_threads()) as pool:
            for _ in pool.map(work, paths):
                pass

    return timed(ours)[1], timed(theirs, decode)[1], timed(theirs, resize)[1]


def check_rows() -> Iterator[Row]:
    """List, split and check a folder of many images in a separate process, to measure its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        write_many(Path(folder))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            scan, check, mebibytes = pool.apply(_check, (folder,))
    note = f"listed in {scan:.1f} s, read and checked in {check:.0f} s"
    name = f"scanning and checking {FILES:,} images: MiB at peak"
    yield Row(name, mebibytes, "< 500", mebibytes < 500, scan + check, note=note)


def write_many(root: Path) -> None:
    """Write files: one image per class, and links to it for the others."""
    for number in range(FILES):
        folder = root / f"class{number % CLASSES:03d}"
        path = folder / f"{number:06d}.jpg"
        if number < CLASSES:
            folder.mkdir()
            Image.fromarray(photograph(number)[:64, :64]).save(path)
        else:
            os.link(folder / f"{number % CLASSES:06d}.jpg", path)


def _check(folder: str) -> tuple[float, float, float]:
    data, scan = timed(load_dataset, folder)
    begin = time.perf_counter()
    report = check_dataset(data, make_split(data))
    assert report.summary["readable"] == FILES
    return scan, time.perf_counter() - begin, peak_memory()


def peak_memory() -> float:
    """Return the peak memory of this process in MiB; getrusage would include the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")) / 1024


def main() -> None:
    sections = {"memory": memory_rows, "files": files_rows, "check": check_rows}
    options = options_of(__doc__, list(sections))
    run("Data against its targets", sections, options)


if __name__ == "__main__":
    main()
