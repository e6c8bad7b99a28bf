"""`proxyhash reproduce`: the paper's experiments."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from proxyhash.cli.benchmark import print_table, run_shown
from proxyhash.cli.output import SafeConsole, print_result
from proxyhash.cli.parameters import Device, Flag, Int, Json
from proxyhash.utils.errors import InputError


def reproduce(
    name: str | None = None,
    /,
    *,
    list_: Annotated[bool, Parameter(name="--list", negative=())] = False,
    dataset: str | None = None,
    tags: Int | None = None,
    seeds: Int | None = None,
    tuned: Path | None = None,
    data_dir: Path | None = None,
    models: Path | None = None,
    device: Device = "auto",
    rerun_stale: Annotated[bool, Flag] = False,
    json_: Json = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Run an experiment of the paper, and write its report: tables beside the paper's, and figures.

      proxyhash reproduce --list
      proxyhash reproduce ablation -o results/ablation

    Stop it at any time: the same command continues. `proxyhash benchmark --recipe` has options for everything else.

    Parameters
    ----------
    name
        The experiment.
    list_
        List the experiments.
    dataset
        Run it on another data set: a name, or a folder.
    tags
        Keep only this many of the most frequent tags.
    seeds
        Number of trainings of each method.
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
        The folder of the records and of report.html; by default results/NAME.
    """
    from proxyhash.experiments.recipes import find_recipe, list_recipes, read_recipe
    from proxyhash.report import compare, write_page

    if list_ or name is None:
        if not list_:
            raise InputError(f"Say which experiment: {', '.join(list_recipes())}.")
        _print_list(list_recipes())
        return
    grid = read_recipe(name)
    changes: dict[str, Any] = {"dataset": dataset, "tags": tags, "seeds": seeds}
    grid = replace(grid, **{key: value for key, value in changes.items() if value is not None})
    folder = output or Path("results") / find_recipe(name).stem
    run: dict[str, Any] = {
        "tuned": tuned,
        "data_dir": data_dir,
        "models": models,
        "device": device,
        "rerun_stale": rerun_stale,
    }
    records = run_shown(grid, folder, **run)
    page = folder / "report.html"
    write_page(compare(records), page, title=f"Experiment {name}")
    if not json_:
        print_table(records)
    facts = {"report": str(page), "records": [asdict(record) for record in records]}
    print_result(facts, f"The report is {page}.", as_json=json_)


def _print_list(found: dict[str, Path]) -> None:
    from proxyhash.experiments.recipes import summary

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, path in found.items():
        table.add_row(name, summary(path))
    SafeConsole(highlight=False).print(table)
