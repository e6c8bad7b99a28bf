import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from PIL import Image

from helpers.fake_gpu import DEVICE, FakeGpu
from proxyhash import InputError
from proxyhash.data.vectors import VectorRows
from proxyhash.data.vectors.subset import select_rows
from proxyhash.evaluation.neighbors import exact_neighbors
from proxyhash.experiments.vectors import EncodingResult, VectorEvalConfig, VectorEvalReport, evaluate_vectors
from proxyhash.experiments.vectors import run as running
from proxyhash.experiments.vectors import sample as sampling
from proxyhash.experiments.vectors.report import choose
from proxyhash.experiments.vectors.sample import draw_sample
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.report.vector_figure import draw_vectors
from proxyhash.training import features as fitting

CONFIG = VectorEvalConfig(bits=(16, 80), num_queries=40)


def clustered(count: int, width: int, seed: int = 0) -> tuple[np.ndarray, ClassLabels]:
    random = np.random.default_rng(seed)
    classes = random.integers(0, 5, count)
    centers = np.random.default_rng(7).normal(size=(5, width))
    names = tuple("abcde")
    return (centers[classes] + random.normal(size=(count, width))).astype(np.float32), ClassLabels(classes, names)


@pytest.fixture(scope="module")
def report() -> VectorEvalReport:
    vectors, labels = clustered(700, 24)
    return evaluate_vectors(vectors, labels=labels, config=CONFIG)


def test_the_table_goes_from_small_to_large_and_has_every_encoding(report: VectorEvalReport) -> None:
    sizes = [(row.title, row.bytes_per_item) for row in report.rows]
    assert set(sizes) == {
        ("ITQ, 16 bits", 2), ("Random rotation, 16 bits", 2), ("PQ", 2), ("OPQ", 2), ("PQ", 10), ("OPQ", 10),
        ("PCA + RaBitQ", 10), ("RaBitQ", 11), ("int8", 24), ("float16", 48), ("float32", 96),
        *((f"ITQ, 16 bits + int8 x{times}", 26) for times in (1, 2, 4, 8)),
    }  # fmt: skip
    assert [size for _, size in sizes] == sorted(size for _, size in sizes)
    assert all(a.recall[10] >= b.recall[10] for a, b in zip(report.rows, report.rows[1:], strict=False) if
               a.bytes_per_item == b.bytes_per_item)  # fmt: skip
    assert (report.database, report.queries, report.width) == (660, 40, 24)
    assert any(note.startswith("Left out: ITQ, 80 bits. ITQ finds at most 24") for note in report.notes)


def test_the_reference_keeps_everything_and_finer_encodings_keep_more(report: VectorEvalReport) -> None:
    recall = {row.title: row.recall[10] for row in report.rows if row.bytes_per_item != 2}
    assert report.rows[-1].recall == {1: 1.0, 10: 1.0, 100: 1.0}
    assert recall["float16"] > 0.99 > recall["RaBitQ"]
    assert recall["int8"] > 0.95 > recall["PQ"]
    assert all(0.2 < row.map <= 1 for row in report.rows if row.map is not None)
    assert [row.title for row in report.rows if row.map is None] == [
        f"ITQ, 16 bits + int8 x{times}" for times in (8, 4, 2, 1)
    ]


def test_more_candidates_of_a_refinement_keep_more(report: VectorEvalReport) -> None:
    recall = {row.title: row.recall[10] for row in report.rows}
    rescored = [recall[f"ITQ, 16 bits + int8 x{times}"] for times in (1, 2, 4, 8)]
    assert rescored == sorted(rescored)
    assert rescored[0] > recall["ITQ, 16 bits"] - 0.02
    assert rescored[-1] > 0.8


def test_without_baselines_only_codes_are_compared(report: VectorEvalReport) -> None:
    vectors, labels = clustered(700, 24)
    alone = evaluate_vectors(vectors, labels=labels, config=replace(CONFIG, baselines=False))
    scores = {row.title: (row.recall, row.map) for row in alone.rows}
    assert scores == {row.title: (row.recall, row.map) for row in report.rows if "bits" in row.title}
    assert len(scores) == 6


def test_held_out_queries_are_neither_in_the_database_nor_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.arange(1, 201, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    sample = draw_sample(vectors, None, None, None, VectorEvalConfig(metric="l2", num_queries=30, max_vectors=150))
    monkeypatch.setattr(sampling, "FIT_ROWS", 50)
    queries, database, fitted = ({*part[:, 0].tolist()} for part in (sample.queries, sample.database[:], sample.fit_rows()))
    assert (len(queries), len(database), len(fitted)) == (30, 120, 50)
    assert not queries & database
    assert fitted <= database
    assert queries != {*draw_sample(vectors, None, None, None, VectorEvalConfig(seed=1, num_queries=30)).queries[:, 0]}


def test_the_recall_of_pq_is_that_of_a_search_by_faiss() -> None:
    vectors, _ = clustered(900, 16)
    config = VectorEvalConfig(bits=(32,), methods=("lsh",), metric="l2", ks=(10,))
    ours = next(row for row in evaluate_vectors(vectors, config=config).rows if row.name == "PQ").recall[10]
    sample = draw_sample(vectors, None, None, None, config)
    pq = faiss.IndexPQ(16, 4, 8)
    pq.pq.cp.seed, pq.pq.cp.min_points_per_centroid = 1, 1
    pq.train(sample.database[:])
    pq.add(sample.database[:])
    found = pq.search(sample.queries, 10)[1]
    exact = exact_neighbors(sample.queries, sample.database, 10, "l2").indices
    shares = [len({*a.tolist()} & {*b.tolist()}) / 10 for a, b in zip(found, exact, strict=True)]
    assert ours == pytest.approx(np.mean(shares), abs=0.01)  # faiss takes tied items in any order


def test_queries_of_a_file_are_compared_by_the_names_of_their_classes() -> None:
    vectors, labels = clustered(400, 16)
    queries, classes = clustered(30, 16, seed=1)
    config = VectorEvalConfig(bits=(16,), methods=("itq",))
    same = evaluate_vectors(vectors, labels=labels, queries=queries, query_labels=classes, config=config)
    backward = ClassLabels(5 - classes.values, ("other", *reversed(classes.names)))
    again = evaluate_vectors(vectors, labels=labels, queries=queries, query_labels=backward, config=config)
    assert [row.map for row in again.rows] == [row.map for row in same.rows]
    assert (same.database, same.queries) == (400, 30)
    without = evaluate_vectors(vectors, labels=labels, queries=queries, config=config)
    assert {row.map for row in without.rows} == {None}


def test_methods_learn_from_labels_and_unlabeled_vectors_are_searched() -> None:
    vectors, labels = clustered(400, 16)
    partly = ClassLabels(np.where(np.arange(400) % 4, labels.values, -1), labels.names)
    tags = TagLabels(labels.one_hot(bool), labels.names)
    for given in (partly, tags):
        report = evaluate_vectors(vectors, labels=given, config=VectorEvalConfig(bits=(8,), methods=("itq-cca:ridge=0.1",)))
        learned = next(row for row in report.rows if row.bits == 8)
        assert learned.name == "ITQ-CCA (ridge=0.1)"
        assert learned.map is not None
        assert report.rows[-1].map is not None
        assert learned.map > report.rows[-1].map  # the exact ranking knows no labels
        assert report.database == 360


def test_codes_with_asymmetric_distances_are_compared_by_their_tables() -> None:
    vectors, labels = clustered(300, 16)
    report = evaluate_vectors(vectors, labels=labels, config=VectorEvalConfig(bits=(8,), methods=("softmax-pq",)))
    row = next(row for row in report.rows if row.bits == 8)
    assert row.map is not None
    assert row.map > 0.5


def test_without_faiss_the_table_has_no_product_quantization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    report = evaluate_vectors(clustered(300, 16)[0], config=replace(CONFIG, bits=(16,)))
    assert not {"PQ", "OPQ"} & {row.name for row in report.rows}
    assert report.notes == (
        "Left out: PQ, 2 bytes, OPQ, 2 bytes. Product quantization needs faiss: pip install 'proxyhash[approximate]'.",
    )


def test_a_few_vectors_are_enough() -> None:
    report = evaluate_vectors(clustered(12, 8)[0], config=VectorEvalConfig(bits=(8,)))
    assert (report.database, report.queries) == (11, 1)
    assert list(report.rows[0].recall) == [1, 10]


def vectors_with(row: object) -> np.ndarray:
    vectors = clustered(50, 8)[0]
    vectors[7] = row
    return vectors


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"vectors": vectors_with(np.nan)}, "row 7 is not finite"),
        ({"vectors": vectors_with(np.inf)}, "row 7 is not finite"),
        ({"vectors": vectors_with(0)}, "row 7 is all zeros"),
        ({"labels": ClassLabels(np.zeros(3, np.int64), ("a",))}, "There are 50 vectors and 3 labels."),
        ({"labels": ClassLabels(np.full(50, -1), ("a",))}, "None of the queries has a label"),
        ({"queries": clustered(5, 9)[0]}, "queries have 9 values and the vectors 8."),
        ({"queries": clustered(5, 8)[0], "query_labels": clustered(4, 8)[1]}, "5 queries and 4 labels of queries."),
        ({"queries": clustered(5, 8)[0], "query_labels": clustered(5, 8)[1]}, "the vectors have none; give both, or none."),
        ({"config": VectorEvalConfig(bits=(8,), ks=(46,))}, "k is 46, and the database has 45 vectors"),
        ({"config": VectorEvalConfig(bits=(8,), num_queries=50)}, "50 queries leave no database of 50 vectors"),
        ({"config": VectorEvalConfig(bits=(16,))}, "ITQ finds at most 8 principal components"),
        ({"config": VectorEvalConfig(bits=(8,), methods=("itq-cca",))}, "ITQ-CCA learns from labels"),
    ],
)
def test_invalid_input_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    given = {"vectors": clustered(50, 8)[0], "config": VectorEvalConfig(bits=(8,)), **arguments}
    with pytest.raises(InputError, match=sentence):
        evaluate_vectors(given.pop("vectors"), **given)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bits": ()}, "bits must be one number or several"),
        ({"bits": (8, 8)}, "several different ones"),
        ({"bits": (0,)}, "bits must be at least 1"),
        ({"ks": (0,)}, "k must be at least 1"),
        ({"metric": "cos"}, "did you mean cosine"),
        ({"methods": ("itqq",)}, "did you mean itq"),
        ({"methods": ()}, "methods"),
        ({"methods": ("itq:steps=3",)}, "steps"),
        ({"num_queries": 0}, "num_queries must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_invalid_settings_are_errors(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        VectorEvalConfig(**settings)


def test_the_advice_names_rows_that_are_worth_their_size() -> None:
    rows = [
        EncodingResult("OPQ", 8, 0, {10: 0.5}),
        EncodingResult("ITQ", 8, 0, {10: 0.3}, bits=64),
        EncodingResult("RaBitQ", 14, 0, {10: 0.4}),
        EncodingResult("PQ", 16, 0, {10: 0.7}),
        EncodingResult("int8", 64, 0, {10: 0.95}),
        EncodingResult("float32", 256, 0, {10: 1.0}),
    ]
    first, second, third = choose(rows, 10)
    assert first == "For a recall@10 of at least 0.9 choose int8: 64 bytes per item, recall@10 0.950."
    assert second == "The best recall@10 of smaller sizes: 8 bytes OPQ (0.500), 16 bytes PQ (0.700)."
    assert "ITQ, 64 bits keeps most: 8 bytes per item, recall@10 0.300" in third
    assert len(choose(rows[:1], 10)) == 1


def test_the_figure_is_written_whole(report: VectorEvalReport, tmp_path: Path) -> None:
    draw_vectors(report, tmp_path / "recall.png")
    with Image.open(tmp_path / "recall.png") as image:
        assert image.width > 800
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50  # lines of several colors
    with pytest.raises(InputError, match=r"must end in .png, .svg or .pdf"):
        draw_vectors(report, tmp_path / "recall.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["recall.png"]


def test_a_memory_mapped_file_gives_the_same_table(tmp_path: Path) -> None:
    vectors, config = clustered(500, 16)[0], VectorEvalConfig(bits=(16,), methods=("itq",))
    np.save(tmp_path / "v.npy", vectors)
    reports = [evaluate_vectors(values, config=config) for values in (vectors, np.load(tmp_path / "v.npy", mmap_mode="r"))]
    assert len({str([(row.title, row.recall) for row in report.rows]) for report in reports}) == 1


def test_rows_of_a_subset_are_copied_on_demand(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.arange(30.0).reshape(10, 3))
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    rows = select_rows(VectorRows(mapped, normalize=True), np.array([2, 5, 9]))
    assert rows.values.values is mapped  # type: ignore[attr-defined]
    np.testing.assert_allclose(rows[1:], VectorRows(mapped[[5, 9]], normalize=True)[:])
    np.testing.assert_array_equal(np.asarray(rows.values), mapped[[2, 5, 9]])
    assert rows.shape == (3, 3)


def test_methods_that_train_are_fitted_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, labels = clustered(300, 8)
    config = VectorEvalConfig(bits=(8,), methods=("dpsh", "itq"), num_queries=20, ks=(5,), device="cuda")
    for module in (running, fitting):
        monkeypatch.setattr(module, "find_device", lambda _: str(DEVICE))
    with FakeGpu() as gpu:
        report = evaluate_vectors(vectors, labels=labels, config=config)
    assert gpu.pinned > 0  # batches were moved to the device
    assert report.as_dict()["config"]["device"] == "cuda:0"
    expected = evaluate_vectors(vectors, labels=labels, config=replace(config, methods=("itq",), device="cpu"))
    assert [row.recall for row in report.rows if row.name == "ITQ"] == [
        row.recall for row in expected.rows if row.name == "ITQ"
    ]


def test_a_device_that_is_not_here_is_an_error_and_not_a_row_that_is_left_out() -> None:
    vectors, labels = clustered(100, 8)
    config = VectorEvalConfig(bits=(8,), methods=("itq", "dpsh"), device="cuda:7")
    with pytest.raises(InputError, match="There is no device cuda:7 here"):
        evaluate_vectors(vectors, labels=labels, config=config)
    with pytest.raises(InputError, match="There is no device gpu; choose"):
        VectorEvalConfig(device="gpu")
