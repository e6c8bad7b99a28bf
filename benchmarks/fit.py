"""Speed and memory of `proxyhash fit` and of encoding, for vectors in a memory-mapped file.

python benchmarks/fit.py                       everything, some minutes on two cores and 3 GB of disk
python benchmarks/fit.py --only encode         some of: fit, encode, sample
python benchmarks/fit.py --vectors mine.npy    another file than 1,000,000 synthetic vectors of 768 values
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import top_k
from proxyhash.data.vectors import read_vectors
from proxyhash.methods import itq
from proxyhash.training.vectors import fit_vectors
from reporting import Row, alone, options_of, run

COUNT, WIDTH, LATENT, BITS = 1_000_000, 768, 96, 256
TURNS = 2
SAMPLED, QUERIES = 200_000, 500
MIB = 1 << 20


def make_vectors(path: Path, count: int = COUNT) -> None:
    """Write vectors with 96 strong and 768 weak directions, as embeddings of networks have them."""
    random = np.random.default_rng(0)
    directions = (random.normal(size=(LATENT, WIDTH)) * np.linspace(2, 0.5, LATENT)[:, None]).astype(np.float32)
    values = np.lib.format.open_memmap(path, "w+", np.float32, (count, WIDTH))
    for first in range(0, count, 50_000):
        size = min(50_000, count - first)
        latent = random.standard_normal((size, LATENT), np.float32)
        values[first : first + size] = latent @ directions + random.standard_normal((size, WIDTH), np.float32)
    values.flush()


class PeakMemory:
    """The largest anonymous memory of this process while a block runs, in bytes; memory-mapped files do not count."""

    def __enter__(self) -> "PeakMemory":
        """Begin to watch."""
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.peak = max(self.peak, 1024 * int(anonymous.split()[1]))

    def __exit__(self, *_: object) -> None:
        """End watching."""
        self._stop.set()
        self._thread.join()


def _fit(path: Path) -> tuple[float, int]:
    """Return the seconds of a fit by ITQ, and its peak of anonymous memory."""
    rows = read_vectors(path).rows()
    rows.mean()  # the file is in the page cache, as for the other side
    with PeakMemory() as memory:
        begin = time.perf_counter()
        fit_vectors(rows, BITS)
        return time.perf_counter() - begin, memory.peak


def _products(path: Path) -> float:
    """Return the seconds of the matrix products of that fit alone: X'X in chunks, and those of fifty iterations of ITQ."""
    values, seconds = read_vectors(path).values, 0.0
    for first in range(0, len(values), 8192):
        chunk = np.array(values[first : first + 8192])
        begin = time.perf_counter()
        chunk.T @ chunk
        seconds += time.perf_counter() - begin
    points = np.random.default_rng(0).normal(size=(itq.MAX_ROTATED // BITS, BITS))
    rotation, corners = np.eye(BITS), np.sign(points)
    for _ in range(itq.ItqSettings().iterations):
        begin = time.perf_counter()
        corners.T @ points
        points @ rotation
        seconds += time.perf_counter() - begin
    return seconds


def fit_rows(path: Path) -> Iterator[Row]:
    fits, products = [], []
    for _ in range(TURNS):
        products.append(alone(_products, path))
        fits.append(alone(_fit, path))
    seconds, bare = min(each[0] for each in fits), min(products)
    peak = max(each[1] for each in fits) / MIB
    count, width = read_vectors(path).values.shape
    name = f"fit itq, {BITS} bits, {count:,} x {width}"
    note = f"{seconds:.1f} s, its matrix products {bare:.1f} s; the rotation is fitted to {itq.MAX_ROTATED // BITS:,} rows"
    yield Row(f"{name}: times its own matrix products", seconds / bare, "<= 2", seconds <= 2 * bare, seconds, note=note)
    yield Row(f"{name}: MiB of anonymous memory", peak, "< 2048", peak < 2048, seconds)


def _encode(path: Path) -> float:
    """Return the seconds of encoding all vectors, by a model that was fitted to some of them."""
    rows = read_vectors(path).rows()
    hasher = fit_vectors(np.asarray(rows.values[:20_000]), BITS)
    hasher.encode(rows)  # warm up
    begin = time.perf_counter()
    hasher.encode(rows)
    return time.perf_counter() - begin


def _multiply_and_pack(path: Path) -> float:
    """Return the seconds of a bare matrix product of all vectors, in chunks, and of packing its signs."""
    values = read_vectors(path).values
    weight = np.random.default_rng(0).normal(size=(values.shape[1], BITS)).astype(np.float32)
    values[:].max()
    begin = time.perf_counter()
    for first in range(0, len(values), 8192):
        outputs = np.asarray(values[first : first + 8192], np.float32) @ weight
        np.packbits(outputs >= 0, axis=1, bitorder="little")
    return time.perf_counter() - begin


def encode_rows(path: Path) -> Iterator[Row]:
    ours, bare = [], []
    for _ in range(TURNS):
        bare.append(alone(_multiply_and_pack, path))
        ours.append(alone(_encode, path))
    count = len(read_vectors(path))
    share = min(bare) / min(ours)
    note = f"{count / min(ours):,.0f} and {count / min(bare):,.0f} vectors/s"
    yield Row(
        f"encode, {BITS} bits: share of a bare product and packing", share, ">= 0.7", share >= 0.7, min(ours), note=note
    )


def _recall(values: NDArray[np.float32], rotated: int) -> float:
    """Return recall@10 of the cosine ranking, with a rotation fitted to so many values."""
    itq.MAX_ROTATED = rotated
    hasher = fit_vectors(values, BITS)
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    exact = np.argsort(-(unit[:QUERIES] @ unit[QUERIES:].T), axis=1)[:, :10]
    codes = hasher.encode(values)
    found = top_k(codes[:QUERIES], codes[QUERIES:], 10).indices
    return float(np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(exact, found, strict=True)]))


def sample_rows(path: Path) -> Iterator[Row]:
    values = np.array(read_vectors(path).values[:SAMPLED], np.float32)
    whole = alone(_recall, values, SAMPLED * BITS)
    for rows in (16_384, itq.MAX_ROTATED // BITS):
        begin = time.perf_counter()
        recall = alone(_recall, values, rows * BITS)
        note = f"recall@10 {recall:.4f} with a rotation fitted to {rows:,} rows, {whole:.4f} with all {len(values):,}"
        name = f"recall@10 lost by {rows:,} rows for the rotation"
        yield Row(name, whole - recall, "< 0.01", whole - recall < 0.01, time.perf_counter() - begin, note=note)


def main() -> None:
    options = options_of(__doc__, ["fit", "encode", "sample"], {"vectors": "a file of vectors to measure with"})
    with tempfile.TemporaryDirectory() as folder:
        path = options.vectors or Path(folder) / "vectors.npy"
        if options.vectors is None:
            make_vectors(path)
        sections: dict[str, Callable[[], Iterator[Row]]] = {
            "fit": lambda: fit_rows(path),
            "encode": lambda: encode_rows(path),
            "sample": lambda: sample_rows(path),
        }
        run("Vectors", sections, options)


if __name__ == "__main__":
    main()
