"""`proxyhash evaluate codes`: honest metrics for anyone's codes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxyhash.cli.parameters import Flag, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import get_process_rank

if TYPE_CHECKING:
    from proxyhash.evaluation import Metric
    from proxyhash.evaluation.metrics import Search
    from proxyhash.utils.progress import Progress

evaluate = App(name="evaluate", help="Measure retrieval, exactly and whatever the order of the database.")


@evaluate.command
def codes(
    *,
    query: Path,
    database: Path,
    top: Int | None = None,
    legacy: str | None = None,
    threads: Int | None = None,
    json_: Json = False,
) -> None:
    """Measure retrieval with codes from files: mAP (exact over ties, with its worst and best), precision and recall.

    For example, with the cutoff that the paper uses on ImageNet:

      proxyhash evaluate codes --query q.npz --database db.npz --top 50000

    Under torchrun, processes share the queries, and the first prints; the numbers are the same to the last digit.

    Parameters
    ----------
    query
        An .npz or .mat file with arrays `codes` (items, bits; +-1, 0/1, booleans, or packed bytes) and `labels` (classes, or
        a matrix of tags of 0 and 1).
    database
        The same for the database.
    top
        Rank only this many items for mAP; by default all.
    legacy
        Also print the mAP of a well-known script: deephash-pytorch, hashnet or talr.
    threads
        How many cores to use; by default all. The result does not depend on it.
    json_
        Print the numbers as JSON instead of a table.
    """
    from proxyhash.evaluation import bootstrap_interval, mean_average_precision
    from proxyhash.evaluation.files import read_labeled_codes

    query_codes, query_labels = read_labeled_codes(query)
    db_codes, db_labels = read_labeled_codes(database)
    search = (query_codes, query_labels, db_codes, db_labels)
    rank = get_process_rank()
    with progress_bars(enabled=rank.rank == 0) as progress:
        metrics = _shared(search, top, threads, progress)
    if rank.rank:
        return
    if legacy is not None:
        metrics.append(mean_average_precision(*search, top, legacy=legacy))
    low, high = bootstrap_interval(metrics[0])
    if json_:
        numbers = [metric.as_dict() for metric in metrics]
        numbers[0]["interval_95"] = [low, high]
        print(json.dumps(numbers, indent=2))
        return
    Console().print(_table(metrics, len(db_codes)))
    print(f"95 % interval of the first by resampling queries: {low:.4f} to {high:.4f}.")
    if metrics[0].without_relevant:
        print(f"{metrics[0].without_relevant:,} queries {metrics[0].lonely_queries}.")


def _shared(search: "Search", top: int | None, threads: int | None, progress: "Progress") -> "list[Metric]":
    """Return all metrics, with the other processes if there are any; alone, torch is not needed."""
    from proxyhash.evaluation import evaluate as all_metrics

    if get_process_rank().world == 1:
        return all_metrics(*search, top=top, threads=threads, progress=progress)
    from proxyhash.training.processes import join_processes
    from proxyhash.training.shared_evaluation import evaluate_shared

    return evaluate_shared(*search, top, processes=join_processes(), threads=threads, progress=progress)


@evaluate.command
def model(
    model_: Annotated[Path, Parameter(name="model")],
    /,
    *,
    data: str | None = None,
    protocol: str | None = None,
    round_: Annotated[Int | None, Parameter(name="--round")] = None,
    data_dir: Path | None = None,
    keep: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Measure a trained model by a protocol; by default on the data and by the protocol it was trained with.

    Under torchrun, processes share images and queries, and the first prints.

    Parameters
    ----------
    model_
        The folder of the model.
    data
        Another data set: a name, or a folder.
    protocol
        Another protocol.
    round_
        Another round of a transfer protocol.
    data_dir
        Where to look for a named data set first.
    keep
        Store the numbers in the model's folder, where its card shows them.
    json_
        Print the numbers as JSON, with mAP under the key map.
    """
    from proxyhash.models.hasher import Hasher
    from proxyhash.training.measure import measure_hasher, what_it_was_trained_for
    from proxyhash.training.processes import join_processes

    processes, hasher = join_processes(), Hasher.load(model_)
    if keep and hasher.folder != model_:
        raise InputError(f"{model_} is the copy of a shared model; save it to a folder of your own to keep numbers with it.")
    with progress_bars(enabled=processes.first) as progress:
        dataset, split = what_it_was_trained_for(hasher, data, protocol, round_, data_dir=data_dir, progress=progress)
        measured = measure_hasher(hasher, dataset, split, processes=processes, progress=progress)
    if not processes.first:
        return
    if keep:
        measured.keep(model_)
    if json_:
        print(json.dumps(measured.as_dict(), indent=2))
        return
    Console().print(_table(measured.metrics, len(measured.split.database)))
    if measured.accuracy is not None:
        print(f"Accuracy by nearest proxy: {measured.accuracy:.4f}.")
    if measured.binarisation_error is not None:
        print(f"Binarisation error, mean of (|nu| - 1)^2: {measured.binarisation_error:.4f}.")
    print(f"Protocol {measured.split.protocol}@{measured.split.version}, fingerprint {measured.split.fingerprint()}.")


def _table(metrics: "list[Metric]", items: int) -> Table:
    title = f"{len(metrics[0].per_query):,} queries, {items:,} items"
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    for metric in metrics:
        table.add_row(Text(metric.name), Text(f"{metric.value:.4f}"))
    return table
