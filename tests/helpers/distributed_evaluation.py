"""Script for torchrun: evaluation by several processes, as functions and on the command line."""

import contextlib
import io
import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.cli.app import main

if TYPE_CHECKING:
    from proxyhash.evaluation.hasher import EvalReport
    from proxyhash.utils.distributed import DistributedContext

SEARCHES = ("classes", "tags", "one query", "nothing relevant", "real queries")


def search_of(name: str) -> tuple[Any, Any, Any, Any]:
    """Return codes and labels of queries and database."""
    random = np.random.default_rng(SEARCHES.index(name))
    queries = 1 if name == "one query" else 37
    q, db = (random.integers(0, 256, (count, 2), dtype=np.uint8) for count in (queries, 400))
    if name == "real queries":
        return random.normal(size=(queries, 16)), random.integers(0, 5, queries), db, random.integers(0, 5, 400)
    if name == "tags":
        return q, random.random((queries, 9)) < 0.2, db, random.random((400, 9)) < 0.2
    classes = 60 if name == "nothing relevant" else 5
    return q, random.integers(0, classes, queries), db, random.integers(0, 5, 400)


def evaluate_model(folder: Path, context: "DistributedContext") -> "EvalReport":
    """Evaluate a model on the images of a folder, one of which cannot be read."""
    from proxyhash.data import load_dataset, make_split
    from proxyhash.evaluation.hasher import evaluate_hasher
    from proxyhash.models.hasher import Hasher

    dataset = load_dataset(folder / "photos")
    split = make_split(dataset, validation="none")
    return evaluate_hasher(Hasher.load(folder / "model"), dataset, split, context=context)


def run(folder: Path) -> None:
    from proxyhash.evaluation.distributed import evaluate_distributed
    from proxyhash.utils.distributed import init_distributed

    context = init_distributed()
    found = {}
    for name in SEARCHES:
        metrics = evaluate_distributed(*search_of(name), top=100, context=context)
        found[name] = [(metric.name, metric.per_query, metric.without_relevant, metric.value) for metric in metrics]
    (folder / f"{context.rank}.pickle").write_bytes(pickle.dumps(found))
    report = evaluate_model(folder, context)
    (folder / f"{context.rank}.json").write_text(json.dumps(report.as_dict()))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(["evaluate", "codes", "--query", str(folder / "q.npz"), "--database", str(folder / "db.npz"), "--json"])
    (folder / f"{context.rank}.txt").write_text(printed.getvalue())


if __name__ == "__main__":
    run(Path(sys.argv[1]))
