"""`proxyhash quickstart`: from a folder of images to a model, an index and a report."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from proxyhash.cli.output import StepTimer, cell, print_result, status_console
from proxyhash.cli.parameters import Device, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.quickstart import DatasetSummary, OutputPaths, QuickstartConfig, Step


def quickstart(
    folder: Path,
    /,
    *,
    bits: Int | None = None,
    backbone: str | None = None,
    epochs: Int | None = None,
    device: Device = "auto",
    json_: Json = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Make a model, an index and a report of your own images, with settings chosen from the images.

      proxyhash quickstart photos/

    The images lie in class folders, beside a metadata.csv with labels or tags, or anywhere without labels. The choices and
    their reasons are printed first, the commands that do the same step by step at the end. An interrupted run continues
    with the same command.

    Parameters
    ----------
    folder
        The images.
    bits
        The code length; by default chosen by the number of classes, and 256 without labels.
    backbone
        The backbone; by default chosen by the size of the images and the installed weights.
    epochs
        Epochs of training; by default chosen by the number of images.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    json_
        Print JSON: summary, config, commands and metrics.
    output
        The folder for everything; by default NAME-quickstart in the current folder.
    """
    from proxyhash.data import list_datasets, load_dataset
    from proxyhash.models.device import find_device
    from proxyhash.quickstart import OutputPaths, Overrides, choose_config, quickstart_steps, summarize
    from proxyhash.quickstart.run import STATE_FILE, check_output_folder, run_steps
    from proxyhash.quickstart.summary import fingerprint
    from proxyhash.utils.atomic_io import check_writable

    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; quickstart takes a folder of your own images.")
    find_device(device)  # one that is not there is an error before anything is written
    output = output or Path(f"{folder.resolve().name}-quickstart")
    check_output_folder(folder, output)
    check_writable(output / STATE_FILE)
    with progress_bars() as progress:
        dataset = load_dataset(folder.resolve(), progress=progress)  # a path, never the name of a known data set
    summary = summarize(dataset)
    config = choose_config(summary, Overrides(bits, backbone, epochs, device))
    paths = OutputPaths(str(folder.resolve() if str(folder) in list_datasets() else folder), output)
    steps = quickstart_steps(config, paths)
    console = status_console(enabled=not json_)
    console.print(_table(summary, config))
    timer = StepTimer()

    def report(step: "Step", was_done: bool) -> None:
        console.print(f"{step.title}: {timer.describe(was_done)}")

    try:
        results = run_steps(steps, paths, fingerprint(dataset), progress=progress_bars, report=report)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command continues where this one stopped.") from None
    metrics = _metrics(results)
    outputs = {"model": str(paths.model), "index": str(paths.index), "report": str(paths.report)}
    settings = {"summary": asdict(summary), "config": asdict(config), "commands": [step.line for step in steps]}
    example = results["indexing"].get("example")  # a run of an earlier release has none
    facts = {**settings, "metrics": metrics, "example": example, **outputs}
    print_result(facts, *_sentences(metrics, example, paths, steps), as_json=json_)


def _table(summary: "DatasetSummary", config: "QuickstartConfig") -> Table:
    kind = "without labels" if summary.kind == "unlabeled" else f"of {summary.classes:,} {summary.kind}"
    table = Table(title=cell(f"{summary.name}: {summary.images:,} images {kind}"), title_justify="left", title_style="bold")
    table.box, table.pad_edge, table.show_header = None, False, False
    for column in ("setting", "value", "reason"):
        table.add_column(column, overflow="fold")
    for reason in config.reasons:
        table.add_row(cell(reason.setting), cell(reason.value, "bold"), cell(reason.reason))
    return table


def _metrics(results: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of the model, of the compared methods by name, and of these on unseen classes."""
    found: dict[str, Any] = {}
    recall = results.get("fitting", {}).get("neighbor_recall")
    if recall is not None:
        found["neighbor_recall"] = recall
    if "evaluating" in results:
        found["map"], found["accuracy"] = results["evaluating"]["map"], results["evaluating"]["accuracy"]
    for title, name in (("comparing", "compared"), ("unseen classes", "unseen"), ("new classes", "for_new_classes")):
        if title in results:
            found[name] = results[title]
    return found | {"indexed": results["indexing"]["items"]}


def _sentences(
    metrics: dict[str, Any], example: dict[str, Any] | None, paths: "OutputPaths", steps: "Sequence[Step]"
) -> list[str]:
    lines = [""]
    if "neighbor_recall" in metrics:
        lines.append(f"The codes keep {100 * metrics['neighbor_recall']:.0f} % of the 10 nearest images by features.")
    if "map" in metrics:
        accuracy = "" if metrics["accuracy"] is None else f", accuracy by nearest proxy {metrics['accuracy']:.3f}"
        lines.append(f"On held-out queries: mAP {metrics['map']:.3f}{accuracy}.")
    for name, title in (
        ("compared", "mAP of the compared methods"),
        ("unseen", "mAP on unseen classes"),
        ("for_new_classes", "mAP on unseen classes by train --for new-classes"),
    ):
        if name in metrics:
            lines.append(f"{title}: " + ", ".join(f"{method} {value:.3f}" for method, value in metrics[name].items()) + ".")
    lines += [f"{metrics['indexed']:,} images are in {paths.index}; the report is {paths.report}."]
    if example is not None:
        lines += ["", f"Nearest to {example['key']}:"]
        lines += [f"  {match['distance']:3} bits  {match['key']}" for match in example["matches"]]
    lines.append("")
    lines += ["The same, step by step:", *(f"  {step.line}" for step in steps), "", "Next:"]
    index = shlex.quote(str(paths.index))
    return [
        *lines,
        f"  proxyhash search {index} IMAGE -k 10 --show found.png",
        f"  proxyhash index add MORE-IMAGES --index {index} --prefix more/",
        f"  proxyhash index info {index}",
    ]
