"""Benchmark of a local index of ten million codes: opening, adding and searching, each pair of numbers in one run.

python benchmarks/search.py                            everything, a few minutes and 2 GB of disk
python benchmarks/search.py --only thousand,uniform    some of: storage, cifar, thousand, uniform
python benchmarks/search.py --model MODEL              real codes for the section cifar, of a model trained on 75 classes:
    proxyhash train cifar100 --protocol transfer --validation none --bits 64 -o MODEL
Without a model, this section uses synthetic codes with the same statistics.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from proxyhash import codes, design_proxies
from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.clusters.centroids import assign_clusters
from proxyhash.index.hits import Hits
from proxyhash.index.local import blocks, transactions
from proxyhash.index.local.index import LocalIndex
from reporting import Row, options_of, run, timed

ITEMS = 10_000_000
MORE = 1_000_000
SMALL = 300_000
BITS = 64
TURNS = 15  # alternations of index and scan, because the speed of a machine varies
TILE_NOISE = 0.05  # share of flipped bits in each copy, where images are tiled to ten million


def flipped(packed: Packed, share: float, seed: int) -> Packed:
    """Return codes with each bit flipped with a probability, in blocks to limit memory."""
    random = np.random.default_rng(seed)
    out = packed.copy()
    for first in range(0, len(out), 262_144):
        part = out[first : first + 262_144]
        part ^= np.packbits(random.random((len(part), 8 * out.shape[1]), dtype=np.float32) < share, axis=1)
    return out


def keys(count: int, first: int = 0) -> list[str]:
    return [f"photos/{number:09d}.jpg" for number in range(first, first + count)]


def uniform(count: int, seed: int) -> Packed:
    return np.random.default_rng(seed).integers(0, 256, (count, BITS // 8), dtype=np.uint8)


def thousand_clusters(count: int, seed: int) -> Packed:
    """Return codes around 1,000 centroids, a bit in twenty flipped."""
    chosen = np.random.default_rng(seed).integers(0, 1000, count)
    return flipped(uniform(1000, 7)[chosen], 0.05, seed + 1)


def filled(folder: Path, stored: Packed, proxies: Packed | None) -> LocalIndex:
    """Return an index of codes in memory, as if read from its file, without keys."""
    index = LocalIndex.open_folder(folder, bits=BITS)
    transactions.recluster_if_grown(index.store, stored, lambda: proxies)
    _, centroids = transactions.active_centroids(index.store)
    with index.store.writing() as generation:
        for first in range(0, len(stored), transactions.CODES_PER_TRANSACTION):
            part = stored[first : first + transactions.CODES_PER_TRANSACTION]
            item_ids = np.arange(first, first + len(part), dtype=np.uint32)
            block = blocks.Block(item_ids, assign_clusters(part, centroids), part)
            blocks.append_codes(index.store, 1, block, generation)
    index.snapshots.latest()
    return index


def nearest(index: LocalIndex, queries: Packed, k: int = 10) -> Hits:
    """Search the codes in memory, without reading items."""
    return index.snapshots.latest().nearest(np.ascontiguousarray(to_words(queries).T), k, with_codes=True)[0]


def seconds_a_query(search: Callable[[Packed], object], queries: Packed, batch: int, count: int) -> float:
    """Return the seconds per query for batches of different queries, the best of three runs."""
    batches = [queries[first : first + batch] for first in range(0, count, batch)]
    return min(timed(lambda: [search(part) for part in batches])[1] for _ in range(3)) / count


def against_scan(
    name: str, stored: Packed, queries: dict[str, Packed], target: float, *, faster: bool, proxies: Packed | None = None
) -> Iterator[Row]:
    """Compare exact search through the index with our own full scan, batches of 1 and of 1,000."""
    with TemporaryDirectory() as folder, filled(Path(folder) / "i", stored, proxies) as index:
        plan = index.info().plan
        for kind, asked in queries.items():
            nearest(index, asked[:20]), codes.top_k(asked[:20], stored, 10)  # compiles
            for batch, count in ((1, 20), (1000, 1000)):
                turns = [
                    [
                        seconds_a_query(search, np.roll(asked, turn * count, axis=0), batch, count)
                        for search in (lambda q: nearest(index, q), lambda q: codes.top_k(q, stored, 10))
                    ]
                    for turn in range(TURNS)
                ]
                ours, scan = np.median(turns, axis=0).tolist()
                found, expected = nearest(index, asked[:100]), codes.top_k(asked[:100], stored, 10)
                equal = np.array_equal(found.distances, expected.distances.ravel())
                equal &= np.array_equal(found.item_ids, expected.indices.ravel())
                ratio = scan / ours if faster else ours / scan
                reached = equal and (ratio >= target if faster else ratio <= target)
                what = "times our scan" if faster else "cost over our scan"
                sign = ">=" if faster else "<="
                note = f"{plan}; {1000 * ours:.3f} ms a query, scan {1000 * scan:.3f}; equal answers: {equal}"
                yield Row(
                    f"{name}{kind}, batches of {batch:,}: {what}", ratio, f"{sign} {target:g}", reached, ours, note=note
                )


def thousand_rows() -> Iterator[Row]:
    yield from against_scan(
        "1,000 clusters, 5 % flips", thousand_clusters(ITEMS, 1), {"": thousand_clusters(1000, 3)}, 15, faster=True
    )


def uniform_rows() -> Iterator[Row]:
    yield from against_scan("uniform codes", uniform(ITEMS, 1), {"": uniform(1000, 2)}, 1.1, faster=False)


def cifar_rows(model: Path | None, data_dir: Path | None) -> Iterator[Row]:
    base, queries, proxies = like_shclm() if model is None else codes_of_images(model, data_dir)
    name = "codes like sHCLM's" if model is None else "sHCLM codes of CIFAR-100"
    stored = flipped(base[np.arange(ITEMS) % len(base)], TILE_NOISE, 5)
    yield from against_scan(f"{name}, tiled", stored, queries, 5, faster=True, proxies=proxies)


def codes_of_images(model: Path, data_dir: Path | None) -> tuple[Packed, dict[str, Packed], Packed | None]:
    """Return the codes of all training images, and of 1,000 test images each of seen and of unseen classes."""
    from proxyhash.data import load_dataset
    from proxyhash.models.feature_cache import cached_features
    from proxyhash.models.hasher import Hasher

    hasher = Hasher.load(model)
    dataset = load_dataset("cifar100", data_dir=data_dir)
    features = cached_features(dataset, hasher.network.features.backbone, hasher.transform).values
    packed = codes.pack(codes.binarize(hasher.head_forward(features)))
    seen = np.isin(dataset.require_classes().values, [dataset.class_names.index(name) for name in hasher.class_names])
    test = np.random.default_rng(0).permutation(dataset.split_indices("query"))
    queries = {
        ", seen classes": packed[test[seen[test]][:1000]],
        ", unseen classes": packed[test[~seen[test]][:1000]],
    }
    proxies = None if hasher.proxies is None else codes.pack(hasher.proxies.weights >= 0)
    return packed[dataset.split_indices("train")], queries, proxies


def like_shclm() -> tuple[Packed, dict[str, Packed], Packed | None]:
    """Return codes of 50,000 images of 80 classes around sHCLM proxies, at the distances measured on CIFAR-100.

    An image of a class that was learned lies 11 bits from its proxy, give or take 4; one of a class that was not lies
    between two proxies, and near others of its class.
    """
    random = np.random.default_rng(3)
    proxies = design_proxies(80, BITS, "shclm", _similarity()).weights >= 0
    unseen = np.array([_between(random, *proxies[random.choice(80, 2, replace=False)]) for _ in range(20)])
    seen_base = _around(random, proxies[random.integers(0, 80, 40_000)], 11.2, 4.3)
    unseen_base = _around(random, unseen[random.integers(0, 20, 10_000)], 8.0, 3.0)
    queries = {
        ", seen classes": codes.pack(_around(random, proxies[random.integers(0, 80, 1000)], 13.0, 4.8)),
        ", unseen classes": codes.pack(_around(random, unseen[random.integers(0, 20, 1000)], 8.0, 3.0)),
    }
    return codes.pack(np.concatenate([seen_base, unseen_base])), queries, codes.pack(proxies)


def _similarity() -> NDArray[np.float64]:
    features = np.random.default_rng(4).normal(size=(80, 16))
    return features @ features.T


def _between(random: np.random.Generator, one: NDArray[np.bool_], other: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.where(random.random(BITS) < 0.5, one, other)


def _around(random: np.random.Generator, centroids: NDArray[np.bool_], mean: float, spread: float) -> NDArray[np.bool_]:
    """Flip about `flips` bits of each code; some bits flip more easily, as in networks."""
    counts = np.clip(np.round(random.normal(mean, spread, len(centroids))), 0, BITS)
    ease = random.random(centroids.shape) / np.linspace(0.4, 1.6, BITS)
    return np.asarray(centroids ^ (np.argsort(np.argsort(ease, axis=1), axis=1) < counts[:, None]))


def storage_rows() -> Iterator[Row]:
    """Measure adding to a file with keys, opening it, and its memory in a separate process."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "i"
        with LocalIndex.open_folder(folder, bits=BITS) as index:
            stored = thousand_clusters(ITEMS, 1)
            _, seconds = timed(index.add, stored, keys(ITEMS))
            rate = ITEMS / seconds
            yield Row("adding 10,000,000 codes to an empty index: codes/s, durable", rate, "", True, seconds)
            fresh, names = thousand_clusters(MORE, 11), keys(MORE, ITEMS)
            _, seconds = timed(index.add, fresh, names)
            rate = MORE / seconds
            yield Row("adding 1,000,000 codes to 10,000,000: codes/s, durable", rate, ">= 200,000", rate >= 2e5, seconds)
            index.remove(names)
        small = Path(place) / "small"
        with LocalIndex.open_folder(small, bits=BITS) as index:
            index.add(stored[:SMALL], keys(SMALL))
        spawn = multiprocessing.get_context("spawn")  # separate processes, to measure their memory
        with spawn.Pool(1) as first, spawn.Pool(1) as one, spawn.Pool(1) as other:
            first.apply(_opened, (str(small),))  # the first process includes the memory of the compiler
            _, little, _ = one.apply(_opened, (str(small),))
            seconds, resident, peak = other.apply(_opened, (str(folder),))
        yield Row("opening 10,000,000 codes: seconds", seconds, "< 2", seconds < 2, seconds)
        bytes_a_code = (resident - little) / (ITEMS - SMALL)
        at_peak = (peak - little) / (ITEMS - SMALL)
        note = f"11 for code and position, the rest for blocks that are not full; {at_peak:.1f} at the peak, while it opens"
        yield Row("... resident bytes a code", bytes_a_code, "<= 12", bytes_a_code <= 12, 0.0, note=note)


def _opened(folder: str) -> tuple[float, int, int]:
    """Return the seconds of opening, the resident bytes afterwards, and the peak."""
    begun = time.perf_counter()
    index = LocalIndex.open_folder(Path(folder))
    index.snapshots.latest()
    seconds = time.perf_counter() - begun
    nearest(index, uniform(3, 0))
    return seconds, _resident("VmRSS"), _resident("VmHWM")


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def main() -> None:
    paths = {"model": "a model for the part cifar", "data-dir": "where to look for CIFAR-100 first"}
    options = options_of(__doc__, ["storage", "cifar", "thousand", "uniform"], paths)
    sections = {
        "storage": storage_rows,
        "cifar": lambda: cifar_rows(options.model, options.data_dir),
        "thousand": thousand_rows,
        "uniform": uniform_rows,
    }
    run("The index against its targets", sections, options)


if __name__ == "__main__":
    main()
