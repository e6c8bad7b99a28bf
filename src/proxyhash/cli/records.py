"""`proxyhash records`: maintenance of experiment records."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Flag, Json
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

records = App(name="records", help="Convert the records of experiments, and list what was run.", help_format="plaintext")


@records.command
def convert(
    old: Path,
    new: Path | None = None,
    /,
    *,
    tuned: Path | None = None,
    delete_old: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Write records of older versions as one records.jsonl per folder, and check that every metric is equal.

    Tuned settings (chosen.toml) get today's names too, and say what they were tuned for if the records beside them do.

    Parameters
    ----------
    old
        A folder of records; folders inside it are converted too.
    new
        The folder to write; by default the same one.
    tuned
        A folder or a file of tuned settings: records that have these settings note which are at an edge of what was tried.
    delete_old
        Delete the files that the new ones replace.
    json_
        Print the counts as JSON.
    """
    from proxyhash.experiments.conversion import convert_folder

    if not old.is_dir():
        raise InputError(f"There is no folder {old}.")
    done = convert_folder(old, new or old, tuned)
    if delete_old:
        for path in done.old_files:
            path.unlink()
    count = f"{done.records:,} records with {done.values:,} values are converted; all values are equal."
    deleted = f"{len(done.old_files):,} old files are deleted." if delete_old else ""
    facts = {"records": done.records, "values": done.values, "deleted": len(done.old_files) if delete_old else 0}
    print_result(facts, *filter(None, (count, deleted)), as_json=json_)


@records.command
def status(results: Path, /, *, output: Annotated[Path | None, Parameter(alias="-o")] = None, json_: Json = False) -> None:
    """List which recipe was run: on which data, at which commit and date, with how many seeds; and which never was.

    Parameters
    ----------
    results
        A folder of records; folders inside it are read too.
    output
        The Markdown file to write; by default the page is printed.
    json_
        Print the runs of the recipes as JSON.
    """
    from proxyhash.report.status import recipe_runs, status_page

    if not results.is_dir():
        raise InputError(f"There is no folder {results}.")
    page = status_page(results)
    if output is not None:
        with atomic_write(output) as temporary:
            temporary.write_text(page, encoding="utf-8")
    lines = [page.rstrip("\n")] if output is None else [f"The status is in {output}."]
    runs = {name: None if run is None else run.as_dict() for name, run in recipe_runs(results).items()} if json_ else {}
    print_result(runs, *lines, as_json=json_)
