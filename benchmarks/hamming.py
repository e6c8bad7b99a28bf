"""Speed of comparing codes, with alternatives measured in the same run on the same codes.

python benchmarks/hamming.py                    everything, a few minutes on two cores
python benchmarks/hamming.py --only map,top     some of: map, real, imagenet, top, widths
"""

import multiprocessing
import resource
from collections.abc import Callable, Iterator

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from proxyhash import codes
from proxyhash.evaluation import mean_average_precision
from proxyhash.evaluation.counts import count_ties
from proxyhash.utils.parallel import available_threads
from reporting import Row, options_of, run, timed

Packed = NDArray[np.uint8]


def random_codes(count: int, bits: int, seed: int) -> Packed:
    return np.random.default_rng(seed).integers(0, 256, (count, bits // 8), dtype=np.uint8)


def clustered_codes(labels: NDArray[np.int64], bits: int, seed: int) -> Packed:
    """Codes like those of a trained network: a center for each class, with a bit in ten flipped."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(7).random((int(labels.max()) + 1, bits)) < 0.5
    return codes.pack(centers[labels] ^ (random.random((len(labels), bits)) < 0.1))


def best_of(repeats: int, work: Callable[..., object], *arguments: object, **named: object) -> float:
    """Return the best time of several runs, after a warm-up run that compiles."""
    work(*arguments, **named)
    return min(timed(work, *arguments, **named)[1] for _ in range(repeats))


def map_rows() -> Iterator[Row]:
    random = np.random.default_rng(0)
    q_labels, db_labels = random.integers(0, 100, 10_000), random.integers(0, 100, 50_000)
    q, db = clustered_codes(q_labels, 64, 1), clustered_codes(db_labels, 64, 2)
    ours = best_of(3, mean_average_precision, q, q_labels, db, db_labels)
    yield Row("mAP, 10,000 x 50,000, 64 bits: G pairs/s", 0.5 / ours, "", True, ours)

    signs, db_signs = codes.unpack(q, 64).astype(np.float32), codes.unpack(db, 64).astype(np.float32)
    hot = np.eye(100, dtype=np.float32)
    usual, seconds = timed(usual_script, signs[:100], hot[q_labels[:100]], db_signs, hot[db_labels])
    exact = mean_average_precision(q[:100], q_labels[:100], db, db_labels).value
    note = f"measured on 100 queries; its mAP {usual:.4f}, the exact one {exact:.4f}"
    ratio = seconds * 100 / ours
    yield Row("... times the usual script", ratio, ">= 300", ratio >= 300, seconds, note=note)

    tensors = [torch.from_numpy(array) for array in (signs[:1000], q_labels[:1000], db_signs, db_labels)]
    seconds = best_of(1, torch_histogram, *tensors)
    ratio = seconds * 10 / ours
    yield Row(
        "... times a vectorized torch histogram", ratio, ">= 20", ratio >= 20, seconds, note="measured on 1,000 queries"
    )

    tags, db_tags = (random.random((count, 100)) < 0.02 for count in (10_000, 50_000))
    seconds = best_of(2, mean_average_precision, q, tags, db, db_tags)
    yield Row("... cost of tags over classes", seconds / ours, "<= 2.5", seconds / ours <= 2.5, seconds)


def usual_script(
    q: NDArray[np.float32], q_labels: NDArray[np.float32], db: NDArray[np.float32], db_labels: NDArray[np.float32]
) -> float:
    """Compute per query two matrix products (distances, and one-hot labels), an argsort and a cumulative sum."""
    total = 0.0
    for code, label in zip(q, q_labels, strict=True):
        order = np.argsort(0.5 * (db.shape[1] - db @ code))
        hit = (db_labels @ label > 0)[order]
        precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
        total += float((precision * hit).sum() / max(1, hit.sum()))
    return total / len(q)


def torch_histogram(q: torch.Tensor, q_labels: torch.Tensor, db: torch.Tensor, db_labels: torch.Tensor) -> torch.Tensor:
    """Compute mAP with distances by matrix products and histograms by scatter, for batches of queries."""
    bits, parts = q.shape[1], []
    for first in range(0, len(q), 100):
        part = slice(first, first + 100)
        distance = ((bits - q[part] @ db.T) / 2).long()
        relevant = q_labels[part, None] == db_labels
        shape = (len(distance), bits + 1)
        items = torch.zeros(shape).scatter_add_(1, distance, torch.ones(distance.shape))
        hits = torch.zeros(shape).scatter_add_(1, distance, relevant.float())
        parts.append((hits * hits.cumsum(1) / items.cumsum(1).clamp(min=1)).sum(1) / hits.sum(1).clamp(min=1))
    return torch.cat(parts)


def real_rows() -> Iterator[Row]:
    """Real-valued distances (product quantization, weighted bits) compared with sorting the distances of each query."""
    random = np.random.default_rng(0)
    q_labels, db_labels = random.integers(0, 100, 1000), random.integers(0, 100, 50_000)
    db = random_codes(50_000, 64, 2)
    for name, shape in (("8 symbols of 8 bits", (8, 256)), ("64 bits with weights", (64, 2))):
        tables = random.random((1000, *shape), dtype=np.float32)
        ours = best_of(2, mean_average_precision, tables, q_labels, db, db_labels)
        exact = mean_average_precision(tables[:100], q_labels[:100], db, db_labels).value
        sorted_, seconds = timed(by_sorting, tables[:100], q_labels[:100], db, db_labels)
        note = f"measured on 100 queries; its mAP {sorted_:.6f}, the exact one {exact:.6f}; {0.05 / ours:.3f} G pairs/s"
        yield Row(
            f"mAP by real distances, 50,000 items, {name}: times sorting", seconds * 10 / ours, "", True, ours, note=note
        )


def by_sorting(tables: NDArray[np.float32], q_labels: NDArray[np.int64], db: Packed, db_labels: NDArray[np.int64]) -> float:
    """Compute per query the sums of its table entries, an argsort and a cumulative sum."""
    subcodes = db.T if tables.shape[2] == 256 else (codes.unpack(db, 64) > 0).T.astype(np.uint8)
    total = 0.0
    for table, label in zip(tables, q_labels, strict=True):
        distance = sum(
            (entries[part] for entries, part in zip(table.astype(np.float64), subcodes, strict=True)), np.zeros(len(db))
        )
        hit = (db_labels == label)[np.argsort(distance)]
        precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
        total += float((precision * hit).sum() / max(1, hit.sum()))
    return total / len(tables)


def imagenet_rows() -> Iterator[Row]:
    """Measure the paper's protocol: 1,281,167 items and 50,000 queries, a part of them for the speed."""
    spawn = multiprocessing.get_context("spawn")  # a separate process, to measure its peak memory
    rates = {}
    for threads, queries in ((1, 6_000), (available_threads(), 12_000)):
        with spawn.Pool(1) as pool:
            seconds, gib = pool.apply(_imagenet, (queries, threads))
        rates[threads] = queries * 1_281_167 / seconds / 1e9
        rate = rates[threads] / threads
        name = f"ImageNet protocol, 64 bits, {threads} thread(s): G pairs/s a core"
        yield Row(name, rate, ">= 1.5", rate >= 1.5, seconds, note=f"{queries:,} queries, {gib:.2f} GiB at peak")
    ratio = rates[available_threads()] / rates[1]
    yield Row(f"... {available_threads()} threads over one", ratio, ">= 1.7", ratio >= 1.7, 0.0)
    with spawn.Pool(1) as pool:
        seconds, gib = pool.apply(_imagenet, (50_000, available_threads()))
    yield Row("... all 50,000 queries, top 50,000: GiB at peak", gib, "< 1.5", gib < 1.5, seconds)


def _imagenet(queries: int, threads: int) -> tuple[float, float]:
    random = np.random.default_rng(0)
    q_labels, db_labels = random.integers(0, 1000, queries), random.integers(0, 1000, 1_281_167)
    q, db = random_codes(queries, 64, 1), random_codes(len(db_labels), 64, 2)
    count_ties(q[:64], q_labels[:64], db[:1000], db_labels[:1000])  # compiles
    _, seconds = timed(mean_average_precision, q, q_labels, db, db_labels, 50_000, threads=threads)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def top_rows() -> Iterator[Row]:
    q, db = random_codes(1000, 64, 1), random_codes(10_000_000, 64, 2)
    index = faiss.IndexBinaryFlat(64)
    index.add(db)
    for threads in sorted({1, available_threads()}):
        faiss.omp_set_num_threads(threads)
        ours, theirs = best_of(2, codes.top_k, q, db, 10, threads=threads), best_of(1, index.search, q, 10)
        name = f"top 10 of 10,000,000, 1,000 queries, {threads} thread(s): times faiss"
        yield Row(
            name, theirs / ours, ">= 4", theirs / ours >= 4, ours, note=f"faiss {theirs:.2f} s, {10 / ours:.2f} G pairs/s"
        )
        ours, theirs = best_of(9, codes.top_k, q[:1], db, 10, threads=threads), best_of(9, index.search, q[:1], 10)
        yield Row(f"... one query, {threads} thread(s): times faiss", theirs / ours, ">= 1", theirs >= ours, ours)


def width_rows() -> Iterator[Row]:
    for bits in (16, 32, 64, 128, 256, 512):
        q, db = random_codes(256, bits, 1), random_codes(500_000, bits, 2)
        seconds = best_of(2, codes.distance_histograms, q, db)
        words = (bits + 63) // 64
        yield Row(f"histograms, {bits} bits: G words/s", 256 * 5e5 * words / seconds / 1e9, "", True, seconds)


def main() -> None:
    sections = {"map": map_rows, "real": real_rows, "imagenet": imagenet_rows, "top": top_rows, "widths": width_rows}
    options = options_of(__doc__, list(sections))
    run("Codes against their targets", sections, options)


if __name__ == "__main__":
    main()
