"""What is measured of embeddings (N, bits) by a protocol, ready for a record."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.data import Dataset, Split
from proxyhash.evaluation import classify_codes, evaluate, precision_recall_curve
from proxyhash.models.hasher import Hasher
from proxyhash.models.heads import Queries
from proxyhash.models.runtime import Floats
from proxyhash.proxies.geometry import unit_rows
from proxyhash.training.measure import proxy_accuracy

PRECISION_KS = (1, 10, 50, *range(100, 1001, 100))  # where precision is measured, as the paper plots it
HISTOGRAM_BINS = 20  # of histograms


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The images of a protocol as a method sees them: what queries ask with, their codes, and the database's codes."""

    queries: Queries
    query_codes: Packed
    database_codes: Packed
    bits: int

    @property
    def subcode_bits(self) -> int:
        """Return how many bits of a code mean something only together."""
        return 1 if self.queries.dtype == np.uint8 else int(self.queries.shape[2]).bit_length() - 1


def retrieval_metrics(coded: EncodedSplit, dataset: Dataset, split: Split) -> dict[str, Any]:
    """Return every metric of searching the database's codes with what the queries are; `map` is the protocol's mAP.

    Where none of the database's classes was learned, its codes are also classified.
    """
    labels = dataset.require_labels()
    asked, searched = labels.values[split.query], labels.values[split.database]
    search = (coded.queries, asked, coded.database_codes, searched)
    metrics = evaluate(*search, top=split.top, ks=PRECISION_KS)
    found = {
        "map": metrics[0].value,
        "queries_without_relevant": metrics[0].without_relevant,
        "all": {metric.name: metric.value for metric in metrics},
    }
    if coded.queries.dtype == np.uint8:  # distances are whole numbers, and few
        curve = precision_recall_curve(*search)
        found["precision_recall"] = {"recall": curve.recall.tolist(), "precision": curve.precision.tolist()}
    if not labels.is_multi_label and not np.isin(searched, split.classes).any():
        accuracy = classify_codes(
            coded.query_codes, asked, coded.database_codes, searched, coded.bits, symbol=coded.subcode_bits
        )
        found["classification"] = accuracy.value
    return found


def embedding_metrics(hasher: Hasher, nu: Floats, dataset: Dataset, split: Split) -> dict[str, Any]:
    """Return how binary the embeddings of queries are, how often the nearest proxy is right, and how the proxies lie."""
    found: dict[str, Any] = {"accuracy": proxy_accuracy(hasher, dataset, split.query, nu)}
    if hasher.head.metric == "hamming":
        errors = ((np.abs(nu[split.query]) - 1) ** 2).mean(1)
        found["binarisation_error"] = float(errors.mean())
        found["binarisation_histogram"] = np.histogram(errors, HISTOGRAM_BINS, (0, 1))[0].tolist()
    if hasher.proxies is not None:
        weights = hasher.proxies.weights
        weights = np.round(unit_rows(weights) * np.sqrt(weights.shape[1]), 6)  # learned ones have any length; 1 stays 1
        found["proxies"] = hasher.proxies.quality.as_dict()
        found["proxy_histogram"] = np.histogram(np.clip(weights, -2, 2), HISTOGRAM_BINS, (-2, 2))[0].tolist()
    return found
