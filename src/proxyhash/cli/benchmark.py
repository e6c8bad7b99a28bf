"""`proxyhash benchmark` and `proxyhash tune`: comparisons of methods."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell, print_line, print_result, show_log, status_console
from proxyhash.cli.parameters import Device, Flag, Int, Json, split_ints, split_names
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.experiments import Grid, Record
    from proxyhash.experiments.edges import Candidate


def benchmark(
    *,
    dataset: str | None = None,
    methods: str | None = None,
    goal: Annotated[Literal["known-classes", "new-classes"] | None, Parameter(name="--for")] = None,
    bits: str | None = None,
    seeds: Int | None = None,
    protocol: str | None = None,
    folds: str | None = None,
    tags: Int | None = None,
    top: Int | None = None,
    denominator: str | None = None,
    backbone: str | None = None,
    pretrained: bool | None = None,
    image_size: Int | None = None,
    finetune: str | None = None,
    eval_on: Literal["test", "validation"] | None = None,
    epochs: Int | None = None,
    batch_size: Int | None = None,
    lr: float | None = None,
    backbone_lr: float | None = None,
    recipe: Path | None = None,
    tuned: Path | None = None,
    data_dir: Path | None = None,
    models: Path | None = None,
    device: Device = "auto",
    rerun_stale: Annotated[bool, Flag] = False,
    json_: Json = False,
    output: Annotated[Path, Parameter(alias="-o")],
) -> None:
    """Compare methods; results that the output folder has already are not computed again.

    For example, on frozen features, three seeds of each:

      proxyhash benchmark --dataset cifar100 --methods itq,learned,shclm --bits 16,32,64 --seeds 3 -o results/mine

    Stop it at any time: the same command continues.

    Parameters
    ----------
    dataset
        A name from `proxyhash datasets`, or a folder.
    methods
        Names from `proxyhash methods`, with commas; with settings as in shclm:triplet=1.
    goal
        Method and optimizer settings for images of known or of new classes, as in `proxyhash train`. Other options override
        them.
    bits
        Code lengths, with commas; by default 16,32,64.
    seeds
        Number of trainings of each method; by default 1.
    protocol
        The protocol; by default the usual one of the data set.
    folds
        The folds of a transfer protocol, with commas; by default the first, 0.
    tags
        Keep only this many of the most frequent tags.
    top
        Rank only this many items for mAP; by default as many as the protocol says.
    denominator
        What divides the sum of precisions: relevant, capped or retrieved; by default as the protocol says.
    backbone
        The network that all methods share.
    pretrained
        Start from pretrained weights (the default), or from random ones.
    image_size
        Input size in pixels; by default that of the backbone.
    finetune
        Train the backbone too, one network with a head for each length: all of it, its last stages, or a number of upper
        stages.
    eval_on
        Evaluate on the test set, or on validation data to choose settings.
    epochs
        Epochs of the methods that train networks.
    batch_size
        Images per step of these.
    lr
        Peak learning rate of heads and proxies.
    backbone_lr
        Peak learning rate of the backbone, with --finetune.
    recipe
        A .toml file with any of this, and with settings of the methods; options override it.
    tuned
        A folder or a file that `proxyhash tune` wrote.
    data_dir
        The first place to look for a named data set.
    models
        Save the trained models in this folder.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    rerun_stale
        Compute results again that are marked as out of date.
    json_
        Print the records as JSON instead of a table.
    output
        The folder of the records.
    """
    from proxyhash.training.config import check_finetune, settings_for

    given: dict[str, Any] = {
        "dataset": dataset,
        "methods": split_names(methods),
        "bits": split_ints("bits", bits),
        "seeds": seeds,
    }
    given |= {"protocol": protocol, "folds": split_ints("folds", folds), "tags": tags, "backbone": backbone}
    given |= {"top": top, "denominator": denominator, "pretrained": pretrained, "image_size": image_size}
    given |= {"finetune": None if finetune is None else check_finetune(finetune), "eval_on": eval_on}
    optim = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "backbone_lr": backbone_lr}
    if goal is not None:
        chosen = settings_for(goal, given["finetune"] or False)
        given["methods"] = given["methods"] or (chosen.method,)
        optim = {**chosen.optim, **{name: value for name, value in optim.items() if value is not None}}
    grid = _grid(recipe, {key: value for key, value in given.items() if value is not None}, optim)
    run: dict[str, Any] = {
        "tuned": tuned,
        "data_dir": data_dir,
        "models": models,
        "device": device,
        "rerun_stale": rerun_stale,
    }
    records = run_shown(grid, output, **run)
    if json_:
        print(json.dumps([asdict(record) for record in records], indent=1))
        return
    print_table(records)


def run_shown(
    grid: "Grid",
    output: Path,
    *,
    tuned: Path | None = None,
    data_dir: Path | None = None,
    models: Path | None = None,
    device: str | None = None,
    rerun_stale: bool = False,
) -> "list[Record]":
    """Run a grid, with tuned settings if there are any; show progress and a line for each new record."""
    from proxyhash.experiments import run_grid
    from proxyhash.experiments.records import RECORDS_FILE
    from proxyhash.experiments.tuned import tuned_grids

    grids = tuned_grids(grid, tuned)
    check_writable(output / RECORDS_FILE)
    console = status_console(stderr=True)

    def report(record: "Record") -> None:
        console.print(_line(record))

    with show_log("proxyhash.models"), progress_bars() as progress:
        options: dict[str, Any] = {"data_dir": data_dir, "models": models, "device": device, "rerun_stale": rerun_stale}
        runs = [run_grid(each, output, **options, progress=progress, report=report) for each in grids]
    return [record for records in runs for record in records]


def tune(
    *,
    dataset: str | None = None,
    methods: str | None = None,
    bits: str = "32",
    protocol: str | None = None,
    folds: str | None = None,
    tags: Int | None = None,
    backbone: str | None = None,
    epochs: Int | None = None,
    recipe: Path | None = None,
    data_dir: Path | None = None,
    device: Device = "auto",
    json_: Json = False,
    output: Annotated[Path, Parameter(alias="-o")],
) -> None:
    """Choose the settings of methods on validation data, with the same number of trials for each.

    The best settings are written to chosen.toml in the output folder, with a record of every candidate. Use them with:

      proxyhash benchmark ... --tuned FOLDER

    The folds of a transfer protocol are tuned one by one, each on classes that its own test does not search.

    Parameters
    ----------
    dataset
        A name from `proxyhash datasets`, or a folder.
    methods
        Names from `proxyhash methods`, with commas.
    protocol
        The protocol; by default the usual one of the data set.
    folds
        The folds of a transfer protocol, with commas; by default the first, 0.
    tags
        Keep only this many of the most frequent tags.
    backbone
        The network that all methods share.
    epochs
        Epochs of the methods that train networks.
    recipe
        A .toml file with any of this; options override it.
    data_dir
        The first place to look for a named data set.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    bits
        The code length to tune at, or several with commas: then the mean mAP decides.
    json_
        Print the best settings as JSON.
    output
        The folder of the records and of the best settings.
    """
    from proxyhash.experiments.tuned import TUNED_FILE
    from proxyhash.experiments.tuning import tune as choose

    given: dict[str, Any] = {"dataset": dataset, "methods": split_names(methods), "bits": split_ints("bits", bits)}
    given |= {"protocol": protocol, "folds": split_ints("folds", folds), "tags": tags, "backbone": backbone}
    grid = _grid(recipe, {key: value for key, value in given.items() if value is not None}, {"epochs": epochs})
    check_writable(output / TUNED_FILE)
    console = status_console(stderr=True)
    with show_log("proxyhash.models"), progress_bars() as progress:
        options: dict[str, Any] = {"data_dir": data_dir, "device": device, "progress": progress}
        found = choose(grid, output, **options, report=lambda record: console.print(_line(record)))
    chosen = {
        path.name: {row: {"label": each.label, "optim": dict(each.optim)} for row, each in best.items()}
        for path, best in found.items()
    }
    lines = [line for path, best in found.items() for line in _choices(path.name if len(found) > 1 else "", best)]
    print_result({"chosen": chosen, "folder": str(output)}, *lines, f"Use it with --tuned {output}", as_json=json_)


def _choices(heading: str, best: "dict[str, Candidate]") -> list[str]:
    rows = [(row, each.label, [f"{key}={value:g}" for key, value in each.optim]) for row, each in best.items()]
    return [*([heading] if heading else []), *(f"{row}: {' '.join([label, *optim])}" for row, label, optim in rows)]


def _grid(recipe: Path | None, given: dict[str, Any], optim: dict[str, Any]) -> "Grid":
    """Return the grid of a recipe, of the options, or of a recipe that options change."""
    from proxyhash.experiments import Grid

    if recipe is None and not {"dataset", "methods"} <= given.keys():
        raise InputError("Say what to compare: --dataset and --methods, or a --recipe.")
    grid = Grid(**given) if recipe is None else replace(Grid.from_toml(recipe), **given)
    changes = {name: value for name, value in optim.items() if value is not None}
    return replace(grid, optim={**grid.optim, **changes}) if changes else grid


def _line(record: "Record") -> str:
    number = f", fold {record.trial['fold']}" if record.trial["fold"] else ""
    who = f"{record.trial['label']}, {record.bits} bits, seed {record.trial['seed']}{number}"
    return f"{who}: {record.map_name} {record.metrics['map']:.4f} in {record.seconds['all']:.0f} s"


def print_table(records: "list[Record]") -> None:
    """Print mAP in percent, methods by code lengths: mean and standard deviation over seeds and folds."""
    from proxyhash.report import compare
    from proxyhash.report.comparison import metric_name
    from proxyhash.report.export import format_cell

    (comparison,) = compare(records)
    print_line(f"{metric_name(comparison.main_metric)} in %, {comparison.title}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    for bits in comparison.code_lengths:
        table.add_column(f"{bits} bits", justify="right")
    for label in dict.fromkeys(record.trial["label"] for record in records):
        cells = [comparison.cell(label, bits, comparison.main_metric) for bits in comparison.code_lengths]
        table.add_row(cell(label), *(format_cell(result, comparison.main_metric) if result else "" for result in cells))
    SafeConsole(highlight=False).print(table)
