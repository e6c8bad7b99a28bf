"""A collection too large for one process, cut into pieces that are the same in every run: what a process takes at a time."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxyhash.data.images import FileImages, Images
from proxyhash.data.load import load_dataset
from proxyhash.data.readers.listing import resolve_root
from proxyhash.data.readers.webdataset import open_tar, tar_fingerprint
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

SHARD_SIZE = 8192  # images: half a minute to some minutes of work, which is what a kill loses at most

Labels = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class ImageShard:
    """Images that are encoded together. `load` lists them with the labels of each; `fingerprint` changes when one does."""

    number: int
    total: int
    load: Callable[[], tuple[Images, Labels]]
    fingerprint: Callable[[], str]


def list_shards(source: Path, size: int = SHARD_SIZE, *, progress: Progress = no_progress) -> list[ImageShard]:
    """Cut a folder of images, a list of files or tar files into pieces.

    A list is a text file with a path in each line, relative to the list; its keys are these lines. Tar files (one, those of
    a folder, or a list of them) are a piece each, whatever their size.
    """
    if source.suffix == ".tar" and source.is_file():
        return _tar_pieces([source])
    if source.is_file():
        names = _lines(source)
        tars = [source.parent / name for name in names if name.endswith(".tar")]
        if tars and len(tars) < len(names):
            raise InputError(f"{source} lists tar files and other files; make a list of each.")
        return _tar_pieces(tars) if tars else _file_pieces(source.parent, names, [()] * len(names), size)
    tars = sorted(resolve_root(source).glob("*.tar"))
    if tars:
        return _tar_pieces(tars)
    dataset = load_dataset(source, progress=progress)
    if not isinstance(dataset.images, FileImages):
        raise InputError(f"{source} is not a folder of image files.")
    labels = [dataset.labels_of(number) for number in range(len(dataset))]
    return _file_pieces(dataset.images.root, dataset.images.names, labels, size)


def _lines(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a list of files: {error}.") from error
    names = [line for line in lines if line and not line.startswith("#")]
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path} {'lists a file twice' if names else 'lists no files'}.")
    return names


def _tar_pieces(paths: Sequence[Path]) -> list[ImageShard]:
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise InputError("Two tar files have the same name, and with it their images the same keys; rename one.")
    return [
        ImageShard(number, len(paths), partial(open_tar, path), partial(tar_fingerprint, path))
        for number, path in enumerate(paths)
    ]


def _file_pieces(root: Path, names: Sequence[str], labels: Labels, size: int) -> list[ImageShard]:
    size = check_int("The number of images in a shard", size, minimum=1)
    starts = range(0, len(names), size)
    pieces = []
    for number, first in enumerate(starts):
        images, own = FileImages(root, names[first : first + size]), labels[first : first + size]
        pieces.append(ImageShard(number, len(starts), partial(_given, images, own), partial(_digits, images, own)))
    return pieces


def _given(images: FileImages, labels: Labels) -> tuple[Images, Labels]:
    return images, labels


def _digits(images: FileImages, labels: Labels) -> str:
    return hashlib.blake2b(f"{images.fingerprint()}:{labels}".encode(), digest_size=16).hexdigest()
