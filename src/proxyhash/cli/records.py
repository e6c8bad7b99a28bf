"""`proxyhash records`: maintenance of experiment records."""

from pathlib import Path
from typing import Annotated

from cyclopts import App

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Flag, Json
from proxyhash.utils.errors import InputError

records = App(name="records", help="Convert the records of experiments.", help_format="plaintext")


@records.command
def convert(
    old: Path, new: Path | None = None, /, *, delete_old: Annotated[bool, Flag] = False, json_: Json = False
) -> None:
    """Write records of older versions as one records.jsonl per folder, and check that every metric is equal.

    Tuned settings (chosen.toml) get today's names too.

    Parameters
    ----------
    old
        A folder of records; folders inside it are converted too.
    new
        The folder to write; by default the same one.
    delete_old
        Delete the files that the new ones replace.
    json_
        Print the counts as JSON.
    """
    from proxyhash.experiments.conversion import convert_folder

    if not old.is_dir():
        raise InputError(f"There is no folder {old}.")
    done = convert_folder(old, new or old)
    if delete_old:
        for path in done.old_files:
            path.unlink()
    count = f"{done.records:,} records with {done.values:,} values are converted; all values are equal."
    deleted = f"{len(done.old_files):,} old files are deleted." if delete_old else ""
    facts = {"records": done.records, "values": done.values, "deleted": len(done.old_files) if delete_old else 0}
    print_result(facts, *filter(None, (count, deleted)), as_json=json_)
