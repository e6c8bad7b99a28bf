"""Encodings that are compared."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from proxyhash.evaluation.compression import RankingTask, score_quantizer
from proxyhash.evaluation.quantizers import CORRECTION_BYTES, FaissPq, Float16, Float32, Int8, Quantizer, RaBitQ
from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.experiments.vectors.hashed import HashedVectors
from proxyhash.experiments.vectors.report import EncodingResult
from proxyhash.experiments.vectors.sample import VectorSample
from proxyhash.index.refinement.refiner import MAX_WIDTH, Kind
from proxyhash.utils.progress import Progress

REFINED_BITS = 256  # codes of at most this length are also measured with a refinement
REFINEMENTS: tuple[Kind, ...] = ("int8", "int8x256")


@dataclass(frozen=True)
class QuantizedVectors:
    """Vectors of a quantizer, compared with queries that are not compressed."""

    quantizer: Quantizer

    @property
    def title(self) -> str:
        """Return the name with the size."""
        return f"{self.quantizer.title}, {self.quantizer.size} bytes"

    def measure(self, sample: VectorSample, task: RankingTask, progress: Progress) -> list[EncodingResult]:
        """Fit the quantizer and rank the queries."""
        begin = time.perf_counter()
        self.quantizer.fit(sample.fit_rows())
        fitted = time.perf_counter()
        scores = score_quantizer(self.quantizer, sample.queries, sample.database, task, progress=progress)
        seconds = {"fit": fitted - begin, "rank": time.perf_counter() - fitted}
        name, sizes = self.quantizer.title, (self.quantizer.size, self.quantizer.shared_size)
        return [EncodingResult(name, *sizes, scores.recall, scores.mean_average_precision, None, seconds)]


def list_encodings(width: int, config: VectorEvalConfig) -> Iterator[QuantizedVectors | HashedVectors]:
    """Yield what is compared: codes first, and at each of their sizes the other encodings that have this size."""
    metric, seed = config.metric, config.seed
    refined = max((bits for bits in config.bits if bits <= min(REFINED_BITS, width)), default=None)
    for bits in config.bits:
        for label in config.methods:
            is_refined = bits == refined and label == config.methods[0] and metric != "ip"  # compared by Euclidean distance
            yield HashedVectors(label, bits, _refinements(width) if is_refined else ())
    if not config.baselines:
        return
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


def _refinements(width: int) -> tuple[Kind, ...]:
    return REFINEMENTS if width > MAX_WIDTH["int8"] else REFINEMENTS[:1]
