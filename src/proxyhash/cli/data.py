"""`proxyhash datasets` and `proxyhash data ...`: what there is, what it is worth, and how to get at its images."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from proxyhash.cli.output import SafeConsole, cell, print_result
from proxyhash.cli.parameters import Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.data import DatasetInfo
    from proxyhash.data.checks import DatasetReport

data = App(name="data", help="Look at data before anything is trained on it.")

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def datasets(*, data_dir: Path | None = None, json_: Json = False) -> None:
    """List the data sets that are known by name, and which of them are on this machine.

    A folder of your own images works wherever a name does: root/class/*.jpg, root/train/class/*.jpg beside root/query, or
    any layout with a metadata.csv.

    Parameters
    ----------
    data_dir
        Where to look first; then PROXYHASH_DATA and the cache folder.
    json_
        Print JSON instead of a table.
    """
    from proxyhash.data import get_dataset_info, list_datasets, list_protocols
    from proxyhash.data.locations import data_folders

    infos = [get_dataset_info(name) for name in list_datasets()]
    if json_:
        rows = [{**_describe(info, data_dir), "protocols": list_protocols(info.name)} for info in infos]
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "what", "images", "classes", "size", "on this machine"):
        table.add_column(heading, justify="right" if heading in {"images", "classes"} else "left", overflow="fold")
    for info in infos:
        where = cell(str(_describe(info, data_dir)["where"] or "no"))
        table.add_row(info.name, info.summary, f"{info.num_images:,}", f"{info.num_classes:,}", info.image_size, where)
    console = SafeConsole()
    console.print(table)
    looked = ", ".join(str(folder) for folder in data_folders(data_dir))
    console.print()
    console.print(cell(f"Looked in {looked}."), soft_wrap=True)
    console.print(
        Text("A folder of images works wherever a name does; proxyhash data check PATH looks at it."), soft_wrap=True
    )


@data.command
def protocols(dataset: str | None = None, /, *, json_: Json = False) -> None:
    """List the protocols: how a data set is cut into training, validation, queries and database.

    Parameters
    ----------
    dataset
        Only those that fit this data set.
    json_
        Print JSON instead of a table.
    """
    from proxyhash.data import get_dataset_info, get_protocol, list_datasets, list_protocols

    if dataset is not None and not Path(dataset).exists():
        get_dataset_info(dataset)
    known = set(list_datasets())
    found = [get_protocol(name, _home(name, known)) for name in list_protocols(dataset)]
    if json_:
        fields = ("name", "version", "summary", "datasets", "kind", "top", "denominator", "validation")
        print(json.dumps([{field: getattr(p, field) for field in fields} for p in found], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("protocol", "for", "metric", "what it does"):
        table.add_column(heading)
    for p in found:
        table.add_row(
            f"{p.name}@{p.version}",
            ", ".join(p.datasets) or f"any {p.kind}",
            cell(p.map_name),
            p.summary,
        )
    SafeConsole().print(table)


@data.command
def check(
    data_: Annotated[str, Parameter(name="data")],
    /,
    *,
    protocol: str | None = None,
    fold: Int = 0,
    backbone: str | None = None,
    data_dir: Path | None = None,
    seed: Int = 0,
    strict: Annotated[bool, Parameter(negative=())] = False,
    threads: Int | None = None,
    json_: Json = False,
) -> None:
    """Verify files, read every image, and look for leaks, empty classes, and unseen classes that are not.

    For example, your own folder, and CIFAR-100 before a transfer experiment:

      proxyhash data check photos/
      proxyhash data check cifar100 --protocol transfer --backbone efficientnet_lite0

    The exit code is 1 if something was found that would make results worthless.

    Parameters
    ----------
    data_
        A name from `proxyhash datasets`, or a folder.
    protocol
        Also check how this protocol cuts it; by default the one that it would expect.
    fold
        The fold of a transfer protocol, 0 to 3.
    backbone
        Also check whether this network was pretrained on classes that should be unseen.
    data_dir
        Where to look for a named data set first.
    seed
        What is random in a hold-out.
    strict
        Stop at the first item that cannot be used, instead of counting it.
    threads
        How many cores to use; by default all.
    json_
        Print JSON instead of a table.
    """
    from proxyhash.data import load_dataset, make_split
    from proxyhash.data.checks import Finding, check_dataset

    with progress_bars() as progress:
        loaded = load_dataset(data_, data_dir=data_dir, strict=strict, progress=progress)
        split, obstacle = None, None
        try:
            split = make_split(loaded, protocol, seed=seed, fold=fold)
        except InputError as error:  # no reason not to look at the images, unless a protocol was asked for
            if protocol is not None or fold:
                raise
            obstacle = None if loaded.kind == "unlabeled" else Finding("error", str(error).rstrip("."))
        report = check_dataset(loaded, split, pretrained_on=_pretrained_on(backbone), threads=threads, progress=progress)
        report = replace(report, findings=(*report.findings, *([obstacle] if obstacle else [])))
    if json_:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report)
    if report.worst_level == "error":
        sys.exit(1)


@data.command
def write(
    name: str,
    folder: Path,
    /,
    *,
    enlarge: Int = 1,
    data_dir: Path | None = None,
    json_: Json = False,
) -> None:
    """Write a data set that is known by name as a folder of image files, to look at or to try other commands on.

    For example, handwritten digits, large enough to see:

      proxyhash data write digits digits/ --enlarge 4

    Parameters
    ----------
    name
        A name from `proxyhash datasets`.
    folder
        The folder; it must not be there yet.
    enlarge
        Make a pixel so many pixels on a side.
    data_dir
        Where to look for the data set first.
    json_
        Print JSON instead of a sentence.
    """
    from proxyhash.data import load_dataset
    from proxyhash.data.folder_export import write_image_folder

    check_int("--enlarge", enlarge, minimum=1)
    with progress_bars() as progress:
        loaded = load_dataset(name, data_dir=data_dir, progress=progress)
        count = write_image_folder(loaded, folder, enlarge=enlarge, progress=progress)
    print_result({"images": count, "folder": str(folder)}, f"Wrote {count:,} images to {folder}.", as_json=json_)


def _print(report: "DatasetReport") -> None:
    summary = report.summary
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    parts = ", ".join(f"{count:,} {name}" for name, count in dict(summary["splits"]).items())  # type: ignore[call-overload]
    table.add_row("data set", cell(f"{summary['name']}: {summary['images']:,} images" + (f" ({parts})" if parts else "")))
    if summary["kind"] != "unlabeled":
        table.add_row("labels", f"{summary['classes']:,} {summary['kind']}, {summary['without label']:,} images without")
    if report.protocol:
        sizes = ", ".join(
            f"{count:,} {name.replace('_', ' ')}"
            for name, count in dict(report.protocol["sizes"]).items()  # type: ignore[call-overload]
        )
        table.add_row("protocol", f"{report.protocol['protocol']}@{report.protocol['version']}: {sizes}")
        table.add_row(
            "", f"{report.protocol['note'] or 'by the published seed'}; fingerprint {report.protocol['fingerprint']}"
        )
    for finding in report.findings:
        count = f": {finding.count:,}" if finding.count else ""
        examples = f" ({'; '.join(finding.examples)})" if finding.examples else ""
        table.add_row(Text(finding.level, _STYLES[finding.level]), cell(f"{finding.message}{count}{examples}"))
    SafeConsole().print(table)


def _describe(info: "DatasetInfo", data_dir: Path | None) -> dict[str, object]:
    from proxyhash.data.locations import find_archive, find_folder

    if not info.folder:
        where = "comes with scikit-learn"
    else:
        found = find_folder(info, data_dir) or find_archive(info, data_dir)
        where = str(found) if found else ""
    return {**asdict(info), "where": where or None}


def _home(protocol: str, known: set[str]) -> str:
    """Return the data set whose name a protocol's name begins with, or any."""
    return next((name for name in known if protocol.startswith(f"{name}-")), "any")


def _pretrained_on(backbone: str | None) -> str | None:
    if backbone is None:
        return None
    from proxyhash.models.backbones import pretraining_data

    return pretraining_data(backbone)
