"""Codes of hashing methods that are compared."""

import time
from dataclasses import dataclass
from typing import Any

from proxyhash.data.vectors.subset import select_rows
from proxyhash.evaluation.compression import RankingTask, score_codes
from proxyhash.experiments.vectors.report import EncodingResult
from proxyhash.experiments.vectors.rescored import FittedCodes, measure_refined
from proxyhash.experiments.vectors.sample import VectorSample
from proxyhash.index.refinement.refiner import Kind
from proxyhash.methods import get_method, parse_method
from proxyhash.models.vector_hasher import VectorHasher
from proxyhash.training.vectors import fit_vectors
from proxyhash.utils.progress import Progress


@dataclass(frozen=True)
class HashedVectors:
    """Codes of a hashing method, compared as the method compares them, and then also with refinements."""

    label: str
    bits: int
    refinements: tuple[Kind, ...] = ()

    @property
    def title(self) -> str:
        """Return the name with the size."""
        return f"{self.row_name}, {self.bits} bits"

    @property
    def row_name(self) -> str:
        """Return the title of the method, with its settings."""
        name, _, settings = self.label.partition(":")
        return get_method(name).title + (f" ({settings})" if settings else "")

    def fit(self, sample: VectorSample, progress: Progress) -> VectorHasher:
        """Fit the method on the database."""
        name, settings = parse_method(self.label)
        database, labels = sample.database, None
        if get_method(name).learns_from != "nothing" and sample.labels is not None:
            labeled = sample.labels.labeled()
            database, labels = select_rows(database, labeled), sample.labels.subset(labeled)
        normalize = sample.config.metric == "cosine"
        options: dict[str, Any] = {"labels": labels, "normalize": normalize, "seed": sample.config.seed}
        options |= {"method": name, "settings": settings, "device": sample.config.device, "progress": progress}
        return fit_vectors(database, self.bits, **options)

    def measure(self, sample: VectorSample, task: RankingTask, progress: Progress) -> list[EncodingResult]:
        """Fit the method, encode and rank the queries."""
        begin = time.perf_counter()
        hasher = self.fit(sample, progress)
        fit_seconds = time.perf_counter() - begin
        fitted = FittedCodes(self.title, hasher, hasher.encode(sample.database, progress=progress), fit_seconds)
        scores = score_codes(hasher.encode_queries(sample.queries), fitted.codes, task, progress=progress)
        seconds = {"fit": fit_seconds, "rank": time.perf_counter() - begin - fit_seconds}
        sizes = fitted.codes.shape[1], fitted.shared_bytes
        row = EncodingResult(self.row_name, *sizes, scores.recall, scores.mean_average_precision, self.bits, seconds)
        return [row, *(each for kind in self.refinements for each in measure_refined(fitted, kind, sample, task))]
