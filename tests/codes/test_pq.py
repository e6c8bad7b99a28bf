"""Product quantization against faiss."""

from itertools import pairwise
from typing import Any

import faiss
import numpy as np
import pytest

from proxyhash.codes.adc import pack_subcodes, table_scorer
from proxyhash.codes.pq import distance_tables, learn_codebooks, quantize, reconstruct

RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((30, 12)).astype(np.float32)
VECTORS = (CENTRES[RANDOM.integers(0, 30, 1500)] + 0.3 * RANDOM.standard_normal((1500, 12))).astype(np.float32)


def error(codebooks: np.ndarray) -> float:
    return float(np.square(VECTORS - reconstruct(quantize(VECTORS, codebooks), codebooks, 12)).sum(1).mean())


@pytest.fixture(scope="module")
def learned() -> np.ndarray:
    return learn_codebooks(VECTORS, np.zeros((4, 16, 3), np.float32), np.random.default_rng(1), 25)


def test_quantization_error_equals_that_of_faiss(learned: np.ndarray) -> None:
    theirs: Any = faiss.ProductQuantizer(12, 4, 4)
    theirs.train(VECTORS)
    rebuilt = theirs.decode(theirs.compute_codes(VECTORS))
    assert error(learned) == pytest.approx(float(np.square(VECTORS - rebuilt).sum(1).mean()), rel=0.05)


def test_codes_and_distances_equal_those_of_faiss_for_its_centroids() -> None:
    theirs: Any = faiss.ProductQuantizer(12, 3, 8)
    theirs.train(VECTORS)
    codebooks = faiss.vector_to_array(theirs.centroids).reshape(3, 256, 4)
    codes = theirs.compute_codes(VECTORS)
    ours = pack_subcodes(quantize(VECTORS, codebooks), 8)
    assert (codes == ours).mean() > 0.999  # equally near centroids may round to either
    expected = np.square(VECTORS[:9, None] - theirs.decode(codes)).sum(2)
    np.testing.assert_allclose(
        table_scorer(distance_tables(VECTORS[:9], codebooks), codes)(slice(None)), expected, atol=1e-3
    )


def test_no_iteration_increases_the_error() -> None:
    books, errors = np.zeros((4, 16, 3), np.float32), []
    for number in range(6):
        books = learn_codebooks(VECTORS, books, np.random.default_rng(number), 1)
        errors.append(error(books))
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(errors))
    assert errors[-1] < 0.9 * errors[0]


def test_few_vectors_and_uneven_parts_are_quantized() -> None:
    few = VECTORS[:10, :7]
    books = learn_codebooks(few, np.zeros((2, 256, 4), np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(reconstruct(quantize(few, books), books, 7), few, atol=1e-5)
    assert quantize(few[:0], books).shape == (0, 2)
