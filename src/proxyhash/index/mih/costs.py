"""Cost model of the exact plans: seconds of a scan, of multi-index hashing by radius, and of building its tables."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.mih.substrings import Substrings

# Nanoseconds, measured by `benchmarks/mih.py --only constants` on two cores of an AMD EPYC with AVX-512 and 32 MB of L3
# cache, 2026-11-19, but for CLUSTER_NS: the benchmark's 0.9 to 1.7 for it include finding the clusters, about 10 us a query,
# and 0.1 chooses the faster plan of searches that compare many codes. Only ratios decide.
SCAN_NS = 0.03  # to compare one query of a batch with 64 bits of a code, on one core
READ_NS = 0.3  # to read 64 bits of a code, once for a batch
CLUSTER_NS = 0.1  # to compare one query with 64 bits of a code of a cluster, on one core
STEP_NS = 250.0  # to begin a step of multi-index hashing: the first bucket is waited for
LOOKUP_NS = (4.0, 40.0)  # to read a bucket, if the tables are in the cache, and if not
ENTRY_NS = (1.5, 4.0)  # to compare an entry of a bucket
COPY_NS, COPY_CLUSTERED_NS = 40.0, 150.0  # to copy 64 bits of a code from a scan's planes, or from a cluster's
BUILD_NS = 45.0  # to sort a code into a table
CACHE_BYTES = 2**25


@dataclass(frozen=True, eq=False)
class MihCosts:
    """Expected cost of multi-index hashing for one query of one core, by radius.

    `entries` (bits + 1,) is the expected number of codes that a query compares until all codes within a radius were seen.
    """

    substrings: Substrings
    bits: int
    memory: int
    entries: NDArray[np.float64]

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Return the seconds of a query until all codes within a radius were seen, (bits + 1,)."""
        in_memory = self.memory > CACHE_BYTES
        lookups = np.cumsum([float(number) for number in _bucket_counts(self.substrings, self.bits)])
        steps = np.arange(1, self.bits + 2)
        return 1e-9 * (STEP_NS * steps + LOOKUP_NS[in_memory] * lookups + ENTRY_NS[in_memory] * self.entries)

    def max_compared(self, seconds: float) -> int:
        """Return how many codes can be compared in so many seconds of one core."""
        return max(1, int(1e9 * seconds / ENTRY_NS[self.memory > CACHE_BYTES]))


def scan_seconds(count: int, parts: int, queries: int, threads: int) -> float:
    """Return the seconds of comparing queries with `count` codes of `parts` words."""
    return 1e-9 * count * parts * (READ_NS + SCAN_NS * queries / threads)


def cluster_seconds(compared: float, parts: int, queries: int, threads: int) -> float:
    """Return the seconds of queries that are each compared with so many codes of clusters, of `parts` words."""
    return 1e-9 * compared * parts * queries * CLUSTER_NS / max(1, min(threads, queries))


def copy_seconds(segment: Segment, kept: int, parts: int) -> float:
    """Return the seconds of copying some codes of `parts` words of a segment to a smaller one."""
    return 1e-9 * parts * kept * (COPY_CLUSTERED_NS if segment.plan == "clusters" else COPY_NS)


def build_seconds(count: int, substrings: Substrings) -> float:
    """Return the seconds of building the tables of `count` codes."""
    return 1e-9 * BUILD_NS * (count * len(substrings) + int((2**substrings.lengths).sum()))


def expected_entries(sample: Words, count: int, substrings: Substrings, bits: int, queries: int = 64) -> NDArray[np.float64]:
    """Estimate how many of `count` codes a query compares until all codes within a radius were seen, (bits + 1,).

    Queries are taken from the `sample` (n, W) of the codes, so that codes with uneven bits are counted as they are. Where
    the sample is too small to show a code, uniform bits are assumed.
    """
    shares = [
        np.maximum(_sampled_shares(sample, start, length, queries), _uniform_shares(length))
        for start, length in zip(substrings.starts.tolist(), substrings.lengths.tolist(), strict=True)
    ]
    steps = (divmod(step, len(substrings)) for step in range(bits + 1))
    entries = [shares[table][distance] if distance < len(shares[table]) else 0.0 for distance, table in steps]
    return count * np.cumsum(entries)


def _bucket_counts(substrings: Substrings, bits: int) -> list[int]:
    """Return the number of buckets that each step visits (bits + 1)."""
    lengths = substrings.lengths.tolist()
    return [math.comb(lengths[step % len(lengths)], step // len(lengths)) for step in range(bits + 1)]


def _uniform_shares(length: int) -> NDArray[np.float64]:
    """Return the share of values at each distance from a value (length + 1,)."""
    return np.array([math.comb(length, distance) for distance in range(length + 1)]) / 2.0**length


def _sampled_shares(sample: Words, start: int, length: int, queries: int) -> NDArray[np.float64]:
    """Return the share of pairs of different codes of a sample whose substrings are at each distance (length + 1,)."""
    first, second = sample[:, start // 64], sample[:, min(start // 64 + 1, sample.shape[1] - 1)]
    values = first >> np.uint64(start % 64)
    if start % 64:
        values |= second << np.uint64(64 - start % 64)
    values &= np.uint64(2**length - 1)
    distances = np.bitwise_count(values[:queries, None] ^ values)
    counts = np.bincount(distances.ravel(), minlength=length + 1)
    counts[0] -= len(distances)  # each query is a code of the sample itself
    return counts / max(1, distances.size - len(distances))
