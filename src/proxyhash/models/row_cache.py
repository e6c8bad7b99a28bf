"""Arrays on disk with a row for each image of a data set: filled batch by batch, resumed, and checked."""

import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.dataset import Dataset
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import AugmentParams, Transform
from proxyhash.models.cache_kinds import PROGRESS, lock_path
from proxyhash.models.runtime import InferenceBackend, run_inference
from proxyhash.utils.atomic_io import DISK_FULL_ADVICE, atomic_write, is_disk_full, make_folder, sync_folder
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json
from proxyhash.utils.locks import exclusive_lock, is_named
from proxyhash.utils.progress import Progress

SAVE_EVERY = 32  # batches between two saves
READABLE = "readable.npy"
CHECKSUMS = "checksums.json"
CRC_CHUNK = 1 << 24


class DamagedCacheError(InputError):
    """An entry of the cache does not hold what was written."""


@dataclass(frozen=True)
class CachedRows:
    """Values (N, ...), mapped from a file, and which images could be read (N,)."""

    values: NDArray[Any]
    readable: NDArray[np.bool_]
    folder: Path


@dataclass(frozen=True)
class RowCache:
    """One entry of the cache: a folder with the file `name`.npy, whose rows are the outputs of a network.

    Parameters
    ----------
    entry
        The folder.
    name
        What the rows are, such as "features".
    shape
        The number of images, and the shape of a row.
    dtype
        float32 or float16; a row of NaN belongs to an image that cannot be read.
    """

    entry: Path
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def path(self) -> Path:
        """Return the file of the rows."""
        return self.entry / f"{self.name}.npy"

    @property
    def part(self) -> Path:
        """Return the file of an extraction that is not complete."""
        return self.entry / f"{self.name}.part"

    @property
    def num_bytes(self) -> int:
        """Return the size of all rows."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def num_bytes_written(self) -> int:
        """Return the size of the rows of an interrupted extraction."""
        return self._rows_done() * self._row_bytes

    def is_complete(self) -> bool:
        """Return whether the extraction has ended."""
        return self.path.is_file()

    def read(self) -> CachedRows:
        """Return the rows of a complete entry.

        Raises
        ------
        DamagedCacheError
            If the files are not as they were written.
        """
        self._check()
        try:
            values = np.load(self.path, mmap_mode="r", allow_pickle=False)
            readable = np.load(self.entry / READABLE, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged() from error
        if values.shape != self.shape or values.dtype != self.dtype:
            raise self._damaged()
        if readable.shape != self.shape[:1] or readable.dtype != bool:
            raise self._damaged()
        with suppress(OSError):  # of another user
            os.utime(self.entry)  # when the entry was last used; not every disk notes that
        return CachedRows(values, readable, self.entry)

    def clear(self) -> None:
        """Delete all files of the entry, the complete rows first."""
        for path in (self.path, self.part, self.entry / PROGRESS, self.entry / READABLE, self.entry / CHECKSUMS):
            path.unlink(missing_ok=True)

    def fill(
        self,
        dataset: Dataset,
        backend: InferenceBackend,
        transform: Transform,
        work: str,
        progress: Progress,
        augment_params: AugmentParams | None = None,
    ) -> None:
        """Compute the rows of all images, from where an interrupted extraction stopped.

        Parameters
        ----------
        dataset
            The images. Unreadable ones are not counted here.
        backend
            Returns the rows of a batch of pixels.
        transform
            The preparation of images.
        work
            What the progress bar says.
        progress
            Called with `work` and the fraction that is done.
        augment_params
            Random parameters of the images (N, 5); None for none.

        Raises
        ------
        InputError
            If the disk refuses the rows; then nothing of them stays on it.
        """
        with self._lock():
            if not self.is_complete():  # another process may have filled it meanwhile
                self._fill(dataset, backend, transform, work, progress, augment_params)

    def _fill(
        self,
        dataset: Dataset,
        backend: InferenceBackend,
        transform: Transform,
        work: str,
        progress: Progress,
        augment_params: AugmentParams | None,
    ) -> None:
        with self._open_part() as (handle, resumed_at):
            begun = resumed_at
            outputs = run_inference(
                dataset.images,
                backend,
                transform,
                indices=np.arange(begun, len(dataset)),
                skipped=SkippedItems(dataset.skipped.strict),
                augment_params=augment_params,
                work=work,
                progress=progress,
            )
            for number, (indices, rows) in enumerate(outputs, 1):
                begun = self._write(handle, begun, indices, rows)
                if number % SAVE_EVERY == 0:
                    _sync(handle)
                    self._note(begun)
            self._write_missing(handle, len(dataset) - begun)
            _sync(handle)
        with atomic_write(self.entry / READABLE) as temporary, temporary.open("wb") as file:
            np.save(file, self._readable_rows())
        self.part.replace(self.path)
        sync_folder(self.entry)
        self._write_checksums()
        (self.entry / PROGRESS).unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Wait until no other process fills the entry."""
        path = lock_path(self.entry)
        while True:
            with self._open_lock(path) as handle, exclusive_lock(handle):
                if not is_named(handle, path):  # deleted by the process that had the lock, and perhaps created anew
                    continue
                try:
                    yield
                finally:
                    with suppress(OSError):  # Windows deletes no open file
                        path.unlink(missing_ok=True)
                return

    def _open_lock(self, path: Path) -> BinaryIO:
        try:
            make_folder(self.entry.parent)
            return path.open("ab")
        except OSError as error:
            raise self._refused(error, is_disk_full(error, self.entry.parent)) from error

    @contextmanager
    def _open_part(self) -> Iterator[tuple[BinaryIO, int]]:
        """Yield the file to append rows to, and the number of its complete rows; an error of the disk deletes it."""
        try:
            make_folder(self.entry)
            begun, header = self._rows_done(), self._header()
            with self.part.open("r+b" if begun else "wb") as handle:
                if not begun:
                    handle.write(header)
                handle.truncate(len(header) + begun * self._row_bytes)
                handle.seek(0, os.SEEK_END)
                yield handle, begun
        except OSError as error:
            is_full = is_disk_full(error, self.entry if self.entry.exists() else self.entry.parent)
            with suppress(OSError):
                self.clear()
                self.entry.rmdir()
            raise self._refused(error, is_full) from error

    def _refused(self, error: OSError, is_full: bool) -> InputError:
        return InputError(f"Cannot keep {self.name} in {self.entry}: {DISK_FULL_ADVICE if is_full else error.strerror}.")

    def _rows_done(self) -> int:
        """Return the number of complete rows of an interrupted extraction; 0 if its files are not valid."""
        try:
            done = json.loads((self.entry / PROGRESS).read_text(encoding="utf-8"))["done"]
            header = self._header()
            with self.part.open("rb") as handle:
                is_ours = handle.read(len(header)) == header
            size = self.part.stat().st_size
        except (OSError, ValueError, KeyError, TypeError):
            done, is_ours, size = 0, False, 0
        is_valid = is_ours and type(done) is int and 0 <= done <= self.shape[0]
        if is_valid and size >= len(header) + done * self._row_bytes:
            return int(done)
        (self.entry / PROGRESS).unlink(missing_ok=True)
        return 0

    def _readable_rows(self) -> NDArray[np.bool_]:
        """Return which rows of the filled part are not those of unreadable images."""
        shape = (self.shape[0], math.prod(self.shape[1:]))
        rows: NDArray[Any] = np.memmap(self.part, self.dtype, "r", len(self._header()), shape)
        readable: NDArray[np.bool_] = ~np.isnan(rows[:, 0])
        return readable

    def _write(self, handle: BinaryIO, begun: int, indices: NDArray[np.int64], rows: NDArray[Any]) -> int:
        """Append the rows of images, and of unreadable ones before and among them; return the number of rows written."""
        end = int(indices[-1]) + 1
        block = np.full((end - begun, *self.shape[1:]), np.nan, self.dtype)
        largest = np.finfo(self.dtype).max
        block[indices - begun] = np.clip(rows, -largest, largest)
        handle.write(block.tobytes())
        return end

    def _write_missing(self, handle: BinaryIO, count: int) -> None:
        for _ in range(count):
            handle.write(np.full(self.shape[1:], np.nan, self.dtype).tobytes())

    def _note(self, done: int) -> None:
        with atomic_write(self.entry / PROGRESS) as temporary:
            temporary.write_text(json.dumps({"done": done}), encoding="utf-8")

    @property
    def _checksums_format(self) -> str:
        return f"proxyhash.{self.name}/1"

    @property
    def _row_bytes(self) -> int:
        return self.num_bytes // self.shape[0]

    def _header(self) -> bytes:
        """Return the beginning of a .npy file with these rows."""
        buffer = BytesIO()
        content = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(buffer, content)
        return buffer.getvalue()

    def _check(self) -> None:
        """Raise unless the files are as they were written; entries of earlier releases have no checksums."""
        path = self.entry / CHECKSUMS
        if not path.is_file():
            return
        try:
            content = read_json(path)
        except InputError as error:
            raise self._damaged() from error
        fields = content if isinstance(content, dict) else {}
        check_format(path, fields.get("format"), (self._checksums_format,), fields.get(REQUIRES))
        is_moved = fields.get("entry", self.entry.name) != self.entry.name
        if is_moved or fields.get("crc32") != self._checksums():
            raise self._damaged()

    def _write_checksums(self) -> None:
        content = {"format": self._checksums_format, REQUIRES: RELEASE, "entry": self.entry.name, "crc32": self._checksums()}
        with atomic_write(self.entry / CHECKSUMS) as temporary:
            temporary.write_text(dump_json(content), encoding="utf-8")

    def _checksums(self) -> dict[str, int]:
        return {path.name: self._crc32(path) for path in (self.path, self.entry / READABLE)}

    def _crc32(self, path: Path) -> int:
        try:
            status = path.stat()
        except OSError as error:
            raise self._damaged() from error
        return _crc32_of_version(path, status.st_mtime_ns, status.st_size)

    def _damaged(self) -> DamagedCacheError:
        return DamagedCacheError(f"The cached {self.name} in {self.entry} are damaged; delete that folder.")


def _sync(handle: BinaryIO) -> None:
    handle.flush()
    os.fsync(handle.fileno())


@lru_cache(maxsize=256)
def _crc32_of_version(path: Path, _modified: int, _size: int) -> int:
    """Return the CRC-32 of a file, once for each version of it: the trials of a grid share their features."""
    found = 0
    with path.open("rb") as handle:
        while chunk := handle.read(CRC_CHUNK):
            found = zlib.crc32(chunk, found)
    return found
