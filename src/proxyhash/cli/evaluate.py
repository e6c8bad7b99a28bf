"""The commands `proxyhash evaluate codes` and `proxyhash evaluate model`, and the group they belong to."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from proxyhash.cli.evaluate_vectors import vectors
from proxyhash.cli.output import SafeConsole, cell, print_line
from proxyhash.cli.parameters import Device, Flag, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import get_process_rank

if TYPE_CHECKING:
    from proxyhash.evaluation import Metric
    from proxyhash.utils.distributed import DistributedContext

evaluate = App(name="evaluate", help="Evaluate retrieval exactly, independent of the order of the database.")
evaluate.command(vectors)


@evaluate.command
def codes(
    *,
    query: Path,
    database: Path,
    top: Int | None = None,
    denominator: str = "relevant",
    legacy: str | None = None,
    threads: Int | None = None,
    json_: Json = False,
) -> None:
    """Evaluate codes from files: mAP (expected over ties, worst and best case), precision and recall.

    For example, with the cutoff and the denominator of the paper's protocol on ImageNet:

      proxyhash evaluate codes --query q.npz --database db.npz --top 50000 --denominator retrieved

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
    denominator
        What divides the sum of precisions of the first mAP: all R relevant items (relevant), min(R, top) (capped) or the
        relevant items among the top (retrieved). The others are shown too.
    legacy
        Also print the mAP of a well-known script: deephash-pytorch, hashnet or talr.
    threads
        Number of threads; by default all cores. The result does not depend on it.
    json_
        Print JSON instead of a table.
    """
    from proxyhash.codes.files import read_code_file
    from proxyhash.cutoff import check_cutoff
    from proxyhash.evaluation import bootstrap_interval, mean_average_precision
    from proxyhash.evaluation.distributed import evaluate_distributed

    check_cutoff(top, denominator)
    queries, items = (read_code_file(path, required=("codes", "labels")) for path in (query, database))
    assert queries.labels is not None
    assert items.labels is not None
    search = (queries.codes, queries.labels, items.codes, items.labels)
    rank, context = get_process_rank(), _init_distributed()
    with progress_bars(enabled=rank.rank == 0) as progress:
        options: dict[str, Any] = {"denominator": denominator, "threads": threads, "progress": progress}
        metrics = evaluate_distributed(*search, top, context=context, **options)
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
    SafeConsole().print(_table(metrics, len(items.codes)))
    print_line(f"95 % interval of the first by resampling queries: {low:.4f} to {high:.4f}.")
    if metrics[0].without_relevant:
        print_line(f"{metrics[0].without_relevant:,} queries {metrics[0].no_relevant_note}.")


def _init_distributed() -> "DistributedContext | None":
    """Join the processes of torchrun; without them torch is not imported."""
    if get_process_rank().world == 1:
        return None
    from proxyhash.utils.distributed import init_distributed

    return init_distributed()


@evaluate.command
def model(
    model_: Annotated[Path, Parameter(name="model")],
    /,
    *,
    data: str | None = None,
    protocol: str | None = None,
    fold: Int | None = None,
    top: Int | None = None,
    denominator: str | None = None,
    data_dir: Path | None = None,
    device: Device = "auto",
    save: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Evaluate a trained model by a protocol; by default on the data set and by the protocol it was trained with.

    Under torchrun, processes share images and queries, and the first prints.

    Parameters
    ----------
    model_
        The folder of the model.
    data
        Another data set: a name, or a folder.
    protocol
        Another protocol.
    fold
        Another fold of a transfer protocol.
    top
        Rank only this many items for mAP; by default as many as the protocol says.
    denominator
        What divides the sum of precisions of the first mAP: relevant, capped or retrieved; by default as the protocol says.
    data_dir
        Folder to look for a named data set first.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    save
        Write metrics.json to the folder of the model; its card shows them.
    json_
        Print JSON, with mAP under the key map.
    """
    from proxyhash.evaluation.hasher import evaluate_hasher, load_eval_data
    from proxyhash.models.hasher import Hasher
    from proxyhash.utils.distributed import init_distributed

    context, hasher = init_distributed(), Hasher.load(model_, device)
    if save and hasher.folder != model_:
        raise InputError(f"{model_} is the copy of a shared model; save it to a folder of your own to save metrics with it.")
    with progress_bars(enabled=context.is_main_process) as progress:
        cutoff: dict[str, Any] = {"top": top, "denominator": denominator}
        dataset, split = load_eval_data(hasher, data, protocol, fold, **cutoff, data_dir=data_dir, progress=progress)
        report = evaluate_hasher(hasher, dataset, split, context=context, progress=progress)
    if not context.is_main_process:
        return
    if save:
        report.save(model_)
    if json_:
        print(json.dumps(report.as_dict(), indent=2))
        return
    SafeConsole().print(_table(report.metrics, len(report.split.database)))
    if report.accuracy is not None:
        print_line(f"Accuracy by nearest proxy: {report.accuracy:.4f}.")
    if report.binarization_error is not None:
        print_line(f"Binarization error, mean of (|nu| - 1)^2: {report.binarization_error:.4f}.")
    print_line(f"Protocol {report.split.protocol}@{report.split.version}, fingerprint {report.split.fingerprint()}.")


def _table(metrics: "list[Metric]", items: int) -> Table:
    title = f"{len(metrics[0].per_query):,} queries, {items:,} items"
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, pad_edge=False, box=None)
    for metric in metrics:
        table.add_row(cell(metric.name), cell(f"{metric.value:.4f}"))
    return table
