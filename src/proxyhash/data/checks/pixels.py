"""Digests of pixels, for unreadable and duplicate images."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.images import Images
from proxyhash.data.skipped import SkippedItems
from proxyhash.utils.parallel import available_threads, prefetch
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

Digests = NDArray[np.void]
_BYTES = 16  # of a digest: among a billion pictures, two different ones share it with probability 1e-21
_AHEAD = 64  # pictures that are begun before the first of them is asked for


def pixel_digests(
    images: Images, skipped: SkippedItems, threads: int | None = None, progress: Progress = no_progress
) -> Digests:
    """Return a digest of each picture's pixels (N,), all zeros for one that cannot be read. Pictures stream through."""
    workers = available_threads() if threads is None else check_int("The number of threads", threads, 1)
    found = np.zeros((len(images), _BYTES), np.uint8)
    for index, digest in enumerate(_each(images, workers)):
        if isinstance(digest, UnreadableImageError):
            skipped.add(digest.kind, f"{images.key(index)} {digest.reason}")
        else:
            found[index] = np.frombuffer(digest, np.uint8)
        if index % 64 == 0:
            progress("reading every image", index / len(images))
    progress("reading every image", 1.0)
    return found.view(f"V{_BYTES}").ravel()


def readable_images(found: Digests) -> NDArray[np.bool_]:
    """Return which pictures could be read."""
    return np.asarray(found.view(np.uint8).reshape(len(found), _BYTES).any(1))


def duplicate_groups(found: Digests) -> NDArray[np.int64]:
    """Return for each picture the number of its group (N,): equal numbers, equal pixels; unreadable ones are alone."""
    numbers = np.unique(found, return_inverse=True)[1].astype(np.int64)
    bad = np.flatnonzero(~readable_images(found))
    numbers[bad] = numbers.max(initial=0) + 1 + np.arange(len(bad))
    return numbers


def _each(images: Images, threads: int) -> Iterator[bytes | UnreadableImageError]:
    def digest(index: int) -> bytes | UnreadableImageError:
        try:
            pixels = images.read(index)
        except UnreadableImageError as error:
            return error
        shape = np.array(pixels.shape, "<i4").tobytes()
        return hashlib.blake2b(shape + pixels.tobytes(), digest_size=_BYTES).digest()

    pool = ThreadPoolExecutor(threads)
    try:
        started = (pool.submit(digest, index) for index in range(len(images)))
        for future in prefetch(started, _AHEAD):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
