"""`proxyhash quickstart`: a person's own images to a model, an index and a report, with one command."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from proxyhash.cli.output import print_result, status_console
from proxyhash.cli.parameters import Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.cli.steps import Stopwatch, run_command

if TYPE_CHECKING:
    from proxyhash.quickstart import Choices, Facts, Step


def quickstart(
    folder: Path,
    /,
    *,
    bits: Int | None = None,
    backbone: str | None = None,
    epochs: Int | None = None,
    json_: Json = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Make a model, an index and a report of your own images; what is chosen, and why, is said.

      proxyhash quickstart photos/

    The images lie in class folders, beside a metadata.csv with labels or tags, or anywhere without labels at all. The
    commands that do the same step by step are printed at the end. It may be stopped; the same command goes on.

    Parameters
    ----------
    folder
        The images.
    bits
        The length of the codes, instead of the one that suits the number of classes.
    backbone
        The network, instead of the one that suits the images and is installed.
    epochs
        Passes over the training images, instead of as many as suit their number.
    json_
        Print JSON: facts, choices, commands and numbers.
    output
        The folder for everything; by default NAME-quickstart, beside you.
    """
    from proxyhash.data import list_datasets, load_dataset
    from proxyhash.quickstart import Places, Wishes, choose, look_at, steps_for
    from proxyhash.quickstart.facts import fingerprint
    from proxyhash.quickstart.run import check_place, run_steps
    from proxyhash.utils.atomic_io import check_writable

    output = output or Path(f"{folder.resolve().name}-quickstart")
    check_place(folder, output)
    check_writable(output / "quickstart.json")
    with progress_bars() as progress:
        dataset = load_dataset(_as_folder(folder), progress=progress)
    facts = look_at(dataset)
    choices = choose(facts, Wishes(bits, backbone, epochs))
    places = Places(str(folder.resolve() if str(folder) in list_datasets() else folder), output)
    steps = steps_for(choices, places)
    console = status_console(enabled=not json_)
    console.print(_table(facts, choices))
    seconds = Stopwatch()

    def tell(step: "Step", before: bool) -> None:
        console.print(f"{step.title}: {'done before' if before else f'done in {seconds.lap():.0f} s'}")

    try:
        answers = run_steps(steps, places, fingerprint(dataset), run_command, tell)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on where this one stopped.") from None
    numbers = _numbers(answers)
    made = {"model": str(places.model), "index": str(places.index), "report": str(places.report)}
    said = {"facts": asdict(facts), "choices": asdict(choices), "commands": [step.line for step in steps]}
    print_result({**said, "numbers": numbers, **made}, *_summary(numbers, places, steps), as_json=json_)


def _as_folder(folder: Path) -> Path:
    """Return the folder so that it is not taken for the name of a data set: a person said that it is theirs."""
    from proxyhash.utils.errors import InputError

    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}; quickstart takes a folder of your own images.")
    return folder.resolve()


def _table(facts: "Facts", choices: "Choices") -> Table:
    kind = "without labels" if facts.kind == "unlabeled" else f"of {facts.classes:,} {facts.kind}"
    table = Table(title=Text(f"{facts.name}: {facts.images:,} images {kind}"), title_justify="left", title_style="bold")
    table.box, table.pad_edge, table.show_header = None, False, False
    for column in ("what", "chosen", "why"):
        table.add_column(column, overflow="fold")
    for reason in choices.reasons:
        table.add_row(Text(reason.what), Text(reason.chosen, "bold"), Text(reason.why))
    return table


def _numbers(answers: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured: of the model, of the methods compared with it, and on unseen classes."""
    found: dict[str, Any] = {}
    if "measuring" in answers:
        found["map"], found["accuracy"] = answers["measuring"]["map"], answers["measuring"]["accuracy"]
    for title, name in (("comparing", "compared"), ("unseen classes", "unseen")):
        if title in answers:
            found[name] = {record["trial"]["method"]: record["metrics"]["map"] for record in answers[title]}
    found["indexed"] = answers["indexing"]["items"]
    return found


def _summary(numbers: dict[str, Any], places: Any, steps: "Sequence[Step]") -> list[str]:
    lines = [""]
    if "map" in numbers:
        accuracy = "" if numbers["accuracy"] is None else f", accuracy by nearest proxy {numbers['accuracy']:.3f}"
        lines.append(f"On held-out queries: mAP {numbers['map']:.3f}{accuracy}.")
    for name, title in (("compared", "Side by side"), ("unseen", "Classes that were never seen")):
        if name in numbers:
            lines.append(f"{title}: " + ", ".join(f"{method} {value:.3f}" for method, value in numbers[name].items()) + ".")
    lines += [f"{numbers['indexed']:,} images are in {places.index}; the report is {places.report}.", ""]
    lines += ["The same, step by step:", *(f"  {step.line}" for step in steps), "", "And now:"]
    index = shlex.quote(str(places.index))
    return [
        *lines,
        f"  proxyhash search {index} IMAGE -k 10 --show found.png",
        f"  proxyhash index add MORE-IMAGES --index {index} --prefix more/",
        f"  proxyhash index info {index}",
    ]
