"""Shards of large image collections, the same in every run."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxyhash.data.images import FileImages, Images
from proxyhash.data.load import load_dataset
from proxyhash.data.readers.listing import resolve_root, utf8_names
from proxyhash.data.readers.webdataset import open_tar, tar_fingerprint
from proxyhash.data.skipped import SkippedItems
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

SHARD_SIZE = 8192  # images: half a minute to some minutes of work, which is what a kill loses at most

LabelNames = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class ImageShard:
    """Images that are encoded together. `load` lists them with the names of their labels, and counts what it leaves out."""

    number: int
    total: int
    load: Callable[[SkippedItems], tuple[Images, LabelNames]]
    fingerprint: Callable[[], str]


def list_shards(
    source: Path, size: int = SHARD_SIZE, skipped: SkippedItems | None = None, *, progress: Progress = no_progress
) -> list[ImageShard]:
    """Return the shards of a folder of images, a list of files, or tar files; files that are left out are counted.

    A list is a text file with a path in each line, relative to the list; its keys are these lines. Each tar file (one, those
    of a folder, or those of a list) is one shard, whatever its size.
    """
    skipped = SkippedItems() if skipped is None else skipped
    if source.suffix == ".tar" and source.is_file():
        return _tar_shards([source])
    if source.is_file():
        names = _lines(source)
        tars = [source.parent / name for name in names if name.endswith(".tar")]
        if tars and len(tars) < len(names):
            raise InputError(f"{source} lists tar files and other files; make a list of each.")
        return _tar_shards(tars) if tars else _file_shards(source.parent, names, [()] * len(names), size)
    tars = sorted(resolve_root(source).glob("*.tar"))
    if tars:
        return _tar_shards(tars)
    dataset = load_dataset(source, strict=skipped.strict, progress=progress)
    skipped.update(dataset.skipped)
    if not isinstance(dataset.images, FileImages):
        raise InputError(f"{source} is not a folder of image files.")
    kept = utf8_names(dataset.images.names, skipped)
    labels = [dataset.labels_of(number) for number in kept]
    return _file_shards(dataset.images.root, [dataset.images.names[number] for number in kept], labels, size)


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a list of files: {error}.") from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path} {'lists a file twice' if names else 'lists no files'}.")
    return names


def _tar_shards(paths: Sequence[Path]) -> list[ImageShard]:
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise InputError("Two tar files have the same name, and with it their images the same keys; rename one.")
    return [
        ImageShard(number, len(paths), partial(open_tar, path), partial(tar_fingerprint, path))
        for number, path in enumerate(paths)
    ]


def _file_shards(root: Path, names: Sequence[str], labels: LabelNames, size: int) -> list[ImageShard]:
    size = check_int("The number of images in a shard", size, minimum=1)
    starts = range(0, len(names), size)
    shards = []
    for number, first in enumerate(starts):
        images, own = FileImages(root, names[first : first + size]), labels[first : first + size]
        shards.append(
            ImageShard(number, len(starts), partial(_images_and_labels, images, own), partial(_fingerprint, images, own))
        )
    return shards


def _images_and_labels(images: FileImages, labels: LabelNames, _: SkippedItems) -> tuple[Images, LabelNames]:
    return images, labels


def _fingerprint(images: FileImages, labels: LabelNames) -> str:
    return hashlib.blake2b(f"{images.fingerprint()}:{labels}".encode(), digest_size=16).hexdigest()
