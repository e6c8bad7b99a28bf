"""The command `proxyhash evaluate vectors`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell, print_line
from proxyhash.cli.parameters import Device, Int, Json, split_ints, split_names
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.data.vectors import VectorFile
    from proxyhash.experiments.vectors import VectorEvalReport
    from proxyhash.labels import Labels


def vectors(
    file: Path,
    /,
    *,
    labels: Path | None = None,
    tags: Path | None = None,
    queries: Path | None = None,
    query_labels: Path | None = None,
    query_tags: Path | None = None,
    bits: str = "64,128,256,512",
    method: str = "itq,random-rotation",
    baselines: bool = True,
    metric: Literal["cosine", "l2", "ip"] = "cosine",
    k: str | None = None,
    num_queries: Int | None = None,
    max_vectors: Int | None = None,
    seed: Int = 0,
    device: Device = "auto",
    plot: Path | None = None,
    json_: Json = False,
) -> None:
    """Compare codes of vectors with other encodings of equal size: what do they keep of the exact ranking?

    For example:

      proxyhash evaluate vectors vectors.npy --labels labels.npy --bits 64,128,256 --plot recall.png

    The rows are codes, codes with a refinement at several oversamplings, product quantization (PQ and OPQ of faiss), RaBitQ,
    int8, float16 and float32. Recall@k is the share of the k exact nearest neighbors among the k nearest by an encoding, and
    the mean over all orders of tied items.

    Parameters
    ----------
    file
        Vectors: .npy, .npz, .safetensors or .parquet, or a folder of the library datasets.
    labels
        Classes of the vectors, for mAP: .npy, .npz or .txt.
    tags
        Tags of the vectors, for mAP: a matrix of 0 and 1, .npy or .npz.
    queries
        A file of queries; by default random vectors are held out, which are neither in the database nor fitted on.
    query_labels
        Classes of the queries in --queries.
    query_tags
        Tags of the queries in --queries.
    bits
        Code lengths, with commas.
    method
        Names from `proxyhash methods`, with commas; with settings as in itq:iterations=10.
    baselines
        Compare the other encodings too, which may take longer than the codes.
    metric
        Distance of the exact ranking: cosine, l2 (Euclidean) or ip (inner product).
    k
        Numbers of neighbors, with commas; by default 1,10,100.
    num_queries
        Number of queries; by default 1,000, or a tenth of fewer than 10,000 vectors.
    max_vectors
        Use only this many vectors, chosen at random.
    seed
        Decides every random draw.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps, for methods that train.
    plot
        Write a figure of recall by bytes per item: .png, .svg or .pdf.
    json_
        Print JSON instead of a table.
    """
    from proxyhash.data.vectors import read_vectors
    from proxyhash.experiments.vectors import VectorEvalConfig, evaluate_vectors
    from proxyhash.report.vector_figure import check_figure_path, draw_vectors

    if plot is not None:
        check_figure_path(plot)
    if queries is None and (query_labels or query_tags):
        raise InputError("Labels of queries need a file of queries; add --queries.")
    config = VectorEvalConfig(
        bits=split_ints("bits", bits) or (),
        methods=split_names(method) or (),
        baselines=baselines,
        metric=metric,
        ks=split_ints("k", k),
        num_queries=num_queries,
        max_vectors=max_vectors,
        seed=seed,
        device=device,
    )
    database = read_vectors(file)
    asked = None if queries is None else read_vectors(queries)
    with progress_bars() as progress:
        report = evaluate_vectors(
            database.rows(),
            labels=_labels(database, labels, tags),
            queries=None if asked is None else asked.rows(),
            query_labels=None if asked is None else _labels(asked, query_labels, query_tags),
            config=config,
            progress=progress,
        )
    if plot is not None:
        draw_vectors(report, plot)
    if json_:
        print(json.dumps(report.as_dict(), indent=2))
        return
    SafeConsole().print(_table(report))
    for sentence in (*report.advice(), *report.notes):
        print_line(sentence)


def _labels(file: "VectorFile", labels: Path | None, tags: Path | None) -> "Labels | None":
    """Return the labels of a file of their own, or those of the file of vectors."""
    from proxyhash.data.vectors import read_labels, read_tags

    if labels is not None and tags is not None:
        raise InputError("Vectors have classes or tags; give one of the two files.")
    if labels is not None:
        return read_labels(labels, len(file))
    return file.labels if tags is None else read_tags(tags, len(file))


def _table(report: "VectorEvalReport") -> Table:
    title = (
        f"{report.database:,} vectors of {report.width} values, {report.queries:,} queries, exact by {report.config.metric}"
    )
    ks, has_map = list(report.rows[0].recall), any(row.map is not None for row in report.rows)
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("encoding")
    for heading in ("bytes per item", *(f"recall@{k}" for k in ks), *(["mAP"] if has_map else [])):
        table.add_column(heading, justify="right")
    for row in report.rows:
        scores = [f"{row.recall[k]:.3f}" for k in ks]
        scores += ["" if row.map is None else f"{row.map:.3f}"] if has_map else []
        table.add_row(cell(row.title), f"{row.bytes_per_item:,}", *scores)
    return table
