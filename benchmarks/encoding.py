"""Speed of feature extraction and encoding, against decoding and inference alone on the same cores.

python benchmarks/encoding.py                everything, about fifteen minutes on two cores
python benchmarks/encoding.py --only memory  some of: files, memory
python benchmarks/encoding.py --short        fewer images

For files the limit is 1 / (decoding + inference), each with all cores: decoding with a pool of threads that keeps no pixels,
and inference by onnxruntime with its default options on one ready batch again and again. For images in memory the limit is
that inference. Features and activations are computed as `cached_features` and `cached_activations` do, without the export
of the network. Each side runs alone in a process, in alternation.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from data import PHOTOGRAPHS, Size, photograph
from proxyhash.data import ArrayImages, Dataset
from proxyhash.data.images import FileImages, Images
from proxyhash.data.shards import list_shards
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import get_transform
from proxyhash.models.activation_cache import LowerStages
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.code_shards import encode_shards
from proxyhash.models.hasher import Hasher
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig, NormalizedBackbone
from proxyhash.models.onnx_backend import OnnxBackend
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.row_cache import RowCache
from proxyhash.models.runtime import BATCH_SIZE
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads
from proxyhash.utils.progress import no_progress
from reporting import Row, alone, options_of, run, timed

BACKBONE, SIZE, BITS, UPPER = "efficientnet_lite0", 224, 64, 5
COUNT, SHORT_COUNT, TURNS = 768, 128, 3
SMALL_SIDE = 32  # of images in memory, as in CIFAR
DTYPES = {"features": "float32", "activations": "float16"}
NETWORKS = {
    "features": "features.onnx",
    "activations": "activations.onnx",
    "embeddings": "model/model.onnx",
    "codes": "model/model.onnx",
}


def write_networks(folder: Path) -> None:
    """Write a model, and the networks that give features and activations."""
    torch.manual_seed(0)
    backbone = create_backbone(BACKBONE).eval()
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, BITS))).eval()
    Hasher(network, get_transform("photo", SIZE)).save(folder / "model")
    lower = LowerStages(backbone.config, split_stages(backbone, UPPER)[0]).eval()
    for name, part in (("features", NormalizedBackbone(backbone)), ("activations", lower)):
        export_onnx(part, folder / f"{name}.onnx", SIZE, outputs=(name,))


def write_files(folder: Path, count: int, size: Size) -> None:
    """Write JPEG files; after fifty of them, photographs are repeated."""
    folder.mkdir(parents=True)
    for number in range(count):
        if number < 50:
            Image.fromarray(photograph(number, size)).save(folder / f"{number:05d}.jpg", quality=90)
        else:
            (folder / f"{number:05d}.jpg").write_bytes((folder / f"{number % 50:05d}.jpg").read_bytes())


def images_of(photos: Path | None, count: int) -> Images:
    """Return the files of a folder, or images in memory."""
    if photos is not None:
        return FileImages(photos, sorted(path.name for path in photos.iterdir())[:count])
    return ArrayImages(np.random.default_rng(0).integers(0, 256, (count, SMALL_SIDE, SMALL_SIDE, 3), dtype=np.uint8))


def decode(photos: Path, count: int) -> float:
    """Return the seconds of decoding alone: the pixels of each file are dropped."""
    images, (box,) = images_of(photos, count), get_transform("photo", SIZE).crop_boxes(1, None)
    cold_start.end()

    def read(index: int) -> None:
        images.read_crop(index, box, np.empty((SIZE, SIZE, 3), np.float32))

    with ThreadPoolExecutor(available_threads()) as pool:
        list(pool.map(read, range(min(16, count))))  # warm up
        return timed(lambda: list(pool.map(read, range(count))))[1]


def infer(network: Path, count: int) -> float:
    """Return the seconds of inference alone, on ready batches."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_threads()
    session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    pixels = np.random.default_rng(0).uniform(0, 255, (BATCH_SIZE, 3, SIZE, SIZE)).astype(np.float32)
    outputs, inputs = [session.get_outputs()[0].name], {session.get_inputs()[0].name: pixels}
    session.run(outputs, inputs)  # warm up
    return timed(lambda: [session.run(outputs, inputs) for _ in range(count // BATCH_SIZE)])[1]


def extract(kind: str, folder: Path, photos: Path | None, count: int) -> float:
    """Return the seconds in which the rows of all images come into a cache."""
    images, backend = images_of(photos, count), OnnxBackend(folder / f"{kind}.onnx")
    transform = get_transform("small" if photos is None else "photo", SIZE)
    cold_start.end()
    row = backend(np.zeros((1, 3, SIZE, SIZE), np.float32)).shape[1:]

    def fill(first: int) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            rows = RowCache(Path(place) / "entry", kind, (first, *row), DTYPES[kind])
            dataset = Dataset("synthetic", _first(images, first))
            rows.fill(dataset, backend, transform, "extracting", no_progress)

    fill(BATCH_SIZE)  # warm up
    return timed(fill, count)[1]


def embed(folder: Path, photos: Path | None, count: int) -> float:
    """Return the seconds of `Hasher.embed`."""
    hasher, images = Hasher.load(folder / "model"), images_of(photos, count)
    if photos is None:
        hasher.transform = get_transform("small", SIZE)
    cold_start.end()
    hasher.embed(_first(images, BATCH_SIZE))  # warm up
    return timed(hasher.embed, images)[1]


def encode(folder: Path, photos: Path, count: int) -> float:
    """Return the seconds of `encode_shards`, for one shard."""
    hasher, skipped = Hasher.load(folder / "model"), SkippedItems()
    cold_start.end()
    hasher.embed(_first(images_of(photos, count), BATCH_SIZE))  # warm up
    with tempfile.TemporaryDirectory(dir=folder) as place:
        shards = list_shards(photos)
        assert len(shards) == 1
        return timed(encode_shards, hasher, shards, Path(place), skipped)[1]


def _first(images: Images, count: int) -> Images:
    """Return the first images of a collection."""
    if isinstance(images, FileImages):
        return FileImages(images.root, images.names[:count])
    assert isinstance(images, ArrayImages)
    return ArrayImages(images.pixels[:count])


def works(folder: Path, photos: Path | None, count: int) -> dict[str, Callable[[], float]]:
    """Return functions that measure us, by what they compute."""
    found: dict[str, Callable[[], float]] = {
        kind: partial(alone, extract, kind, folder, photos, count) for kind in ("features", "activations")
    }
    found["embeddings"] = partial(alone, embed, folder, photos, count)
    if photos is not None:
        found["codes"] = partial(alone, encode, folder, photos, count)
    return found


def rows_of(name: str, folder: Path, photos: Path | None, count: int) -> Iterator[Row]:
    """Compare each work with its limit."""
    ours = works(folder, photos, count)
    limits: dict[str, Callable[[], float]] = {
        network: partial(alone, infer, folder / network, count) for network in sorted({NETWORKS[kind] for kind in ours})
    }
    if photos is not None:
        limits["decoding"] = partial(alone, decode, photos, count)
    best = least_seconds({**limits, **ours})
    for kind in ours:
        inference, decoding = best[NETWORKS[kind]], best.get("decoding", 0.0)
        share = (inference + decoding) / best[kind]
        note = f"{count / best[kind]:.1f} images/s; inference {count / inference:.1f}"
        note += f", decoding {count / decoding:.0f}" if decoding else ""
        limit = "1 / (decoding + inference)" if decoding else "bare inference"
        yield Row(f"{name}, {kind}: speed over {limit}", share, ">= 0.9", share >= 0.9, best[kind], note=note)


def least_seconds(sides: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return the least seconds of each side, measured in alternation."""
    turns: list[dict[str, Any]] = [{name: side() for name, side in sides.items()} for _ in range(TURNS)]
    return {name: min(turn[name] for turn in turns) for name in sides}


def files_rows(count: int) -> Iterator[Row]:
    for size, _ in PHOTOGRAPHS:
        with tempfile.TemporaryDirectory() as place:
            folder, photos = Path(place), Path(place) / "photos"
            write_files(photos, count, size)
            alone(write_networks, folder)
            yield from rows_of(f"JPEG files of {size[0]} x {size[1]}", folder, photos, count)


def memory_rows(count: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        alone(write_networks, Path(place))
        yield from rows_of(f"images of {SMALL_SIDE} x {SMALL_SIDE} in memory", Path(place), None, count)


def main() -> None:
    options = options_of(__doc__, ["files", "memory"], short="fewer images")
    count = SHORT_COUNT if options.short else COUNT
    sections = {"files": partial(files_rows, count), "memory": partial(memory_rows, count)}
    run(f"Feature extraction and encoding, {BACKBONE} at {SIZE} pixels, against their limits", sections, options)


if __name__ == "__main__":
    main()
