"""Encodings that are compared."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxyhash.data.vectors.subset import select_rows
from proxyhash.evaluation.compression import RankingScores, RankingTask, score_codes, score_quantizer
from proxyhash.evaluation.quantizers import CORRECTION_BYTES, FaissPq, Float16, Float32, Int8, Quantizer, RaBitQ
from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.experiments.vectors.report import EncodingResult
from proxyhash.experiments.vectors.sample import VectorSample
from proxyhash.methods import get_method, parse_method
from proxyhash.training.vectors import fit_vectors
from proxyhash.utils.progress import Progress


@dataclass(frozen=True)
class QuantizedVectors:
    """Vectors of a quantizer, compared with queries that are not compressed."""

    quantizer: Quantizer

    @property
    def title(self) -> str:
        """Return the name with the size."""
        return f"{self.quantizer.title}, {self.quantizer.size} bytes"

    def measure(self, sample: VectorSample, task: RankingTask, progress: Progress) -> EncodingResult:
        """Fit the quantizer and rank the queries."""
        begin = time.perf_counter()
        self.quantizer.fit(sample.fit_rows())
        fitted = time.perf_counter()
        scores = score_quantizer(self.quantizer, sample.queries, sample.database, task, progress=progress)
        sizes = (self.quantizer.size, self.quantizer.shared_size)
        return _result(self.quantizer.title, sizes, scores, (begin, fitted))


@dataclass(frozen=True)
class HashedVectors:
    """Codes of a hashing method, compared as the method compares them."""

    label: str
    bits: int

    @property
    def title(self) -> str:
        """Return the name with the size."""
        return f"{self.row_name}, {self.bits} bits"

    @property
    def row_name(self) -> str:
        """Return the title of the method, with its settings."""
        name, _, settings = self.label.partition(":")
        return get_method(name).title + (f" ({settings})" if settings else "")

    def measure(self, sample: VectorSample, task: RankingTask, progress: Progress) -> EncodingResult:
        """Fit the method, encode and rank the queries."""
        name, settings = parse_method(self.label)
        database, labels = sample.database, None
        if get_method(name).learns_from != "nothing" and sample.labels is not None:
            labeled = sample.labels.labeled()
            database, labels = select_rows(database, labeled), sample.labels.subset(labeled)
        begin, normalize = time.perf_counter(), sample.config.metric == "cosine"
        options: dict[str, Any] = {"labels": labels, "normalize": normalize, "seed": sample.config.seed}
        options |= {"method": name, "settings": settings, "device": sample.config.device, "progress": progress}
        hasher = fit_vectors(database, self.bits, **options)
        fitted = time.perf_counter()
        codes = hasher.encode(sample.database, progress=progress)
        queries = hasher.encode_queries(sample.queries)
        scores = score_codes(queries, codes, task, progress=progress)
        shared = sum(tensor.nbytes for tensor in hasher.network.state_dict().values())
        return _result(self.row_name, (codes.shape[1], shared), scores, (begin, fitted), self.bits)


def _result(
    name: str, sizes: tuple[int, int], scores: RankingScores, times: tuple[float, float], bits: int | None = None
) -> EncodingResult:
    seconds = {"fit": times[1] - times[0], "rank": time.perf_counter() - times[1]}
    return EncodingResult(name, *sizes, scores.recall, scores.mean_average_precision, bits, seconds)


def list_encodings(width: int, config: VectorEvalConfig) -> Iterator[QuantizedVectors | HashedVectors]:
    """Yield what is compared: codes first, and at each of their sizes the other encodings that have this size."""
    metric, seed = config.metric, config.seed
    for bits in config.bits:
        yield from (HashedVectors(label, bits) for label in config.methods)
    for size in sorted({-(-bits // 8) for bits in config.bits}):
        if size <= width:
            yield from (QuantizedVectors(FaissPq(width, metric, size, rotate=rotate, seed=seed)) for rotate in (False, True))
        dims = 8 * (size - CORRECTION_BYTES)
        if 0 < dims < width:
            yield QuantizedVectors(RaBitQ(width, metric, dims, seed=seed))
    yield QuantizedVectors(RaBitQ(width, metric, seed=seed))
    yield QuantizedVectors(Int8(width, metric))
    yield QuantizedVectors(Float16(width, metric))
    yield QuantizedVectors(Float32(width, metric))
