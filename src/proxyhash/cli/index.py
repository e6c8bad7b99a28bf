"""`proxyhash index`: adding to an index, and its maintenance."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell, print_line, print_result
from proxyhash.cli.parameters import Flag, Int, Json
from proxyhash.cli.progress import counting_bar, progress_bars
from proxyhash.utils.errors import DamagedError, InputError
from proxyhash.utils.progress import Progress, no_progress

if TYPE_CHECKING:
    from proxyhash.index import Index
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.salvage import SalvageReport

_LOST_ITEMS_SHOWN = 20

index = App(name="index", help="Create and maintain an index of codes.")


@index.command
def add(
    folder: Path,
    /,
    *,
    index_: Annotated[str, Parameter(name="--index")],
    model: Path | None = None,
    prefix: str = "",
    prune: Annotated[bool, Flag] = False,
    strict: Annotated[bool, Flag] = False,
    vector_column: str | None = None,
    key_column: str | None = None,
    label_column: tuple[str, ...] = (),
    keep_vectors: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Encode the new and changed images of a folder or vectors of a file, and store them.

      proxyhash index add photos/ --model model --index photos.index
      proxyhash index add photos/ --model model --index milvus://localhost:19530/photos
      proxyhash index add vectors.parquet --model encoder --index texts.index

    Codes are committed every few seconds: after a crash, run the command again and it continues.

    Parameters
    ----------
    folder
        The images, in any layout; or a file of vectors (.npy, .npz, .safetensors, .parquet) or a folder of the library
        datasets, for a model that takes vectors.
    index_
        The folder of the index, or its address on a Milvus server; created if it does not exist.
    model
        The folder of a trained model, copied into a new index. An existing index has its own copy; an index on a server
        needs the model once on each machine.
    prefix
        A prefix of the keys, which are otherwise paths inside the folder, or keys of the file, or its name and a row;
        needed for a second folder with the same names.
    prune
        Also remove items of this folder whose files are gone, or of this file whose keys are gone.
    strict
        Stop at the first image that cannot be read, instead of leaving it out.
    vector_column
        The column of vectors in a table; by default the only column of lists of floats.
    key_column
        The column of keys in a table; by default key or id.
    label_column
        A column of labels in a table; may be given several times. By default label, labels or tags.
    keep_vectors
        Store the vectors in the index too, so that an upgrade to another model does not need the file.
    json_
        Print JSON.
    """
    from proxyhash.cli.index_vectors import VectorOptions, add_vector_file, takes_vectors

    options = VectorOptions(vector_column, key_column, label_column, keep_vectors)
    if takes_vectors(index_, model):
        add_vector_file(folder, index_, model, options, prefix=prefix, prune=prune, as_json=json_)
        return
    options.check_unused(folder)
    from proxyhash.data import SkippedItems
    from proxyhash.index.folder_sync import add_folder

    skipped = SkippedItems(strict)
    with open_index(index_, model) as opened, counting_bar("encoding", "images") as on_progress:
        done = add_folder(opened, folder, skipped, prefix=prefix, prune=prune, on_progress=on_progress)
        total = len(opened)
    left_out = [f"Left out: {sentence}" for sentence in skipped.sentences()]
    encoded = done.added + done.replaced
    rate = f" at {encoded / done.seconds:,.0f} images/s" if encoded >= 100 else ""
    print_result(
        {**asdict(done), "items": total, "skipped": skipped.as_dict()},
        *left_out,
        f"{done.added:,} added, {done.replaced:,} replaced, {done.unchanged:,} unchanged, {done.removed:,} removed{rate}. "
        f"{index_} holds {total:,} items.",
        as_json=json_,
    )


@index.command
def info(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Describe an index.

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    json_
        Print JSON instead of a table.
    """
    with open_index(index_) as opened:
        facts = opened.info()
    if json_:
        print(json.dumps(facts.as_dict(), indent=2))
        return
    rows = [
        ("items", f"{facts.items:,}"),
        ("bits", str(facts.bits)),
        ("model", facts.model or "none: codes from elsewhere"),
        ("searched by", facts.plan if facts.plan == "scan" else f"{facts.plan}, exactly"),
        ("no match", "calibrated" if facts.calibrated else "not calibrated; see proxyhash index calibrate --help"),
    ]
    if facts.width is not None:
        rows.append(("vectors", f"of {facts.width:,} values; {facts.kept_vectors:,} are kept"))
    if facts.sources is not None:
        rows.append(("images from" if facts.width is None else "vectors from", ", ".join(facts.sources) or "nowhere"))
    if facts.bytes_on_disk is not None:
        rows.append(("on disk", f"{facts.bytes_on_disk / 1e6:,.1f} MB"))
    _print_rows(rows)


@index.command
def remove(index_: Annotated[str, Parameter(name="index")], /, *keys: str, json_: Json = False) -> None:
    """Remove items by their keys: all of them, or none if one is unknown.

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    keys
        What to remove.
    json_
        Print JSON.
    """
    if not keys:
        raise InputError("Say which keys to remove.")
    with open_index(index_) as opened:
        removed, left = opened.remove(keys), len(opened)
    print_result({"removed": removed, "items": left}, f"{removed:,} removed; {index_} holds {left:,} items.", as_json=json_)


@index.command
def verify(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Read everything in an index and report problems; the exit code is 1 if there are any.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    from proxyhash.index.maintenance import VerifyReport
    from proxyhash.index.maintenance import verify as verify_index

    try:
        with open_local_index(index_) as opened:
            found = verify_index(opened)
    except DamagedError as error:  # it cannot even be opened
        found = VerifyReport(0, 0, (str(error),))
    if json_:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        for problem in found.problems:
            print_line(problem)
        print_line(f"{index_}: {found.items:,} items in {found.blocks:,} blocks, {'ok' if found.ok else 'DAMAGED'}.")
    if not found.ok:
        sys.exit(1)


@index.command
def compact(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Return unused space to the disk, and choose clusters again.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    from proxyhash.index.maintenance import compact as compact_index

    with open_local_index(index_) as opened:
        before, after = compact_index(opened)
    sentence = f"{index_}: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now."
    print_result({"bytes_before": before, "bytes_now": after}, sentence, as_json=json_)


@index.command
def backup(index_: Annotated[str, Parameter(name="index")], destination: Path, /, *, json_: Json = False) -> None:
    """Copy an index to another folder, consistently while others write; later backups copy only what changed.

      proxyhash index backup photos.index /backup/photos.index

    The backup is an index itself: it can be verified and searched. Do not write to it.

    Parameters
    ----------
    index_
        The folder of the index.
    destination
        The folder of the backup: a new one, or an earlier backup of the same index.
    json_
        Print JSON.
    """
    from proxyhash.index.backup import backup as backup_index

    with open_local_index(index_) as opened, progress_bars() as progress:
        done = backup_index(opened, destination, progress)
    sentence = (
        f"{done.items_copied:,} items and {done.blocks_copied:,} blocks of codes copied, "
        f"{done.items_removed:,} items removed. "
        f"{destination} holds {done.items:,} items, {done.bytes_on_disk / 1e6:,.1f} MB."
    )
    print_result(done.as_dict(), sentence, as_json=json_)


@index.command
def restore(
    backup_: Annotated[Path, Parameter(name="backup")],
    destination: Path,
    /,
    *,
    replace: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Verify a backup completely, and copy it to a new index.

      proxyhash index restore /backup/photos.index photos.index

    Parameters
    ----------
    backup_
        The folder of the backup.
    destination
        The folder of the new index.
    replace
        Replace an index in that folder in one step. A service that has it open goes on with the new one.
    json_
        Print JSON.
    """
    from proxyhash.index.backup import restore as restore_index

    with progress_bars() as progress:
        count = restore_index(backup_, destination, replace=replace, progress=progress)
    print_result({"items": count}, f"{destination} holds the {count:,} items of {backup_}.", as_json=json_)


@index.command
def salvage(index_: Annotated[str, Parameter(name="index")], new: Path, /, *, json_: Json = False) -> None:
    """Extract every intact item of a damaged index to a new one; the exit code is 1 if something is lost.

      proxyhash index salvage photos.index saved.index

    The damaged index is not changed.

    Parameters
    ----------
    index_
        The folder of the damaged index.
    new
        The folder of the new index.
    json_
        Print JSON, with all lost items.
    """
    from proxyhash.index.salvage import salvage as salvage_index

    with progress_bars() as progress:
        report = salvage_index(Path(index_), new, progress)
    print_result(report.as_dict(), *_salvage_sentences(report, new), as_json=json_)
    if not report.complete:
        sys.exit(1)


def _salvage_sentences(report: "SalvageReport", new: Path) -> list[str]:
    """Return what was saved and what is lost."""
    sentences = [f"{new} holds {report.saved:,} items that were intact."]
    if report.lost_commits:
        sentences.append(f"{report.lost_commits:,} acknowledged commits are lost.")
    if report.unknown:
        sentences.append(f"{report.unknown:,} items are lost without a trace.")
    if report.lost:
        sentences.append(f"{len(report.lost):,} items are lost:")
    for item in report.lost[:_LOST_ITEMS_SHOWN]:
        sentences.append(f"  {item.item_id}  {'?' if item.key is None else item.key}: {item.reason}")
    if len(report.lost) > _LOST_ITEMS_SHOWN:
        sentences.append("  ... (--json lists all)")
    return [*sentences, *report.notes]


@index.command
def migrate(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Bring an index of an older release to the format of this one.

    Every command that opens an index does so; this one shows the progress. It can be stopped and run again.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    with progress_bars() as progress, open_local_index(index_, progress) as opened:
        count = len(opened)
    print_result({"items": count}, f"{index_} has the format of this release; it holds {count:,} items.", as_json=json_)


@index.command
def upgrade(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    model: Path,
    drop_unreadable: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Encode everything again with another model, beside the active codes, which are then replaced in one step.

    It can be stopped and run again: new codes are kept. Searches see the old codes until all new ones are written.

    Parameters
    ----------
    index_
        The folder of the index.
    model
        The folder of the new model.
    drop_unreadable
        Remove items whose images or vectors cannot be read any more, instead of stopping.
    json_
        Print JSON.
    """
    from proxyhash.data import SkippedItems
    from proxyhash.index.model_store import load_hasher
    from proxyhash.index.upgrade import upgrade as upgrade_index

    skipped = SkippedItems()
    with open_local_index(index_) as opened, counting_bar("encoding", "items") as on_progress:
        moved = upgrade_index(opened, load_hasher(model), skipped, drop_unreadable=drop_unreadable, on_progress=on_progress)
    left_out = [f"Left out: {sentence}" for sentence in skipped.sentences()]
    facts = {"moved": moved, "skipped": skipped.as_dict()}
    print_result(facts, *left_out, f"{index_}: {moved:,} items have codes of the new model.", as_json=json_)


@index.command(name="import")
def import_(
    codes: Path,
    /,
    *more: Path,
    index_: Annotated[str, Parameter(name="--index")],
    model: Path | None = None,
    json_: Json = False,
) -> None:
    """Import codes: an .npz file with `codes`, and optionally `keys` and `labels`; or folders of shards.

      proxyhash index import codes.npz --index other.index
      proxyhash index import shards/ --model model --index milvus://localhost:19530/photos

    Parameters
    ----------
    codes
        The .npz file: packed codes with their length in `bits` (as `proxyhash encode` writes it), or a matrix of +-1 or 0/1.
        Or the folder that `proxyhash encode --shards` wrote.
    more
        More folders, if several machines wrote shards of one collection.
    index_
        The folder of the index, or its address on a Milvus server; created if it does not exist.
    model
        The model that encoded the shards, for a new index that is searched with images.
    json_
        Print JSON.
    """
    from proxyhash.index.code_import import add_shards, find_shards, read_codes
    from proxyhash.models.code_shards import read_shard

    if codes.is_dir():
        paths = find_shards([codes, *more])
        bits = None if model is not None else read_shard(paths[0]).bits
        with open_index(index_, model, bits) as opened, counting_bar("importing", "shards") as on_progress:
            done = add_shards(opened, paths, on_progress)
            total, bits = len(opened), opened.bits
    else:
        if more or model is not None:
            raise InputError("One .npz file is imported at a time, and without --model, as it does not name a model.")
        packed, bits, keys, labels = read_codes(codes)
        with open_index(index_, None, bits) as opened:
            if opened.model is not None:
                raise InputError(
                    f"{index_} holds codes of a model, and {codes} does not name the model of its codes; add the originals."
                )
            done = opened.add(packed, keys, labels)
            total = len(opened)
    sentence = f"{done.added:,} added, {done.replaced:,} replaced. {index_} holds {total:,} items of {bits} bits."
    print_result({"added": done.added, "replaced": done.replaced, "items": total, "bits": bits}, sentence, as_json=json_)


@index.command
def duplicates(index_: Annotated[str, Parameter(name="index")], /, *, radius: Int = 0, json_: Json = False) -> None:
    """List near duplicates: sets of items connected by pairs of codes at most so many bits apart.

    Parameters
    ----------
    index_
        The folder of the index.
    radius
        The bits in which two near duplicates may differ.
    json_
        Print JSON: a list of lists of keys.
    """
    from proxyhash.index.duplicates import find_duplicates

    with open_local_index(index_) as opened, progress_bars() as progress:
        duplicates = find_duplicates(opened, radius, progress=progress)
    if json_:
        print(json.dumps([list(duplicate.keys) for duplicate in duplicates], indent=2))
        return
    for keys in (duplicate.keys for duplicate in duplicates):
        print_line(f"{len(keys):,}: {', '.join(keys[:8])}{', ...' if len(keys) > 8 else ''}")
    print_line(f"{len(duplicates):,} sets, {sum(len(duplicate.keys) for duplicate in duplicates):,} items.")


@index.command
def calibrate(
    model: Path,
    /,
    *,
    data: str | None = None,
    protocol: str | None = None,
    data_dir: Path | None = None,
    json_: Json = False,
) -> None:
    """Measure the precision of matches by distance, on the validation images of a model, and store it with the model.

    An index that is created with the model, or added to with --model, then says when nothing matches.

    Parameters
    ----------
    model
        The folder of the model.
    data
        Another data set than it was trained with: a name, or a folder. For a model that takes vectors: a file of labeled
        vectors that it was not fitted on.
    protocol
        Another protocol.
    data_dir
        Where to look for a named data set first.
    json_
        Print JSON: the expected precision at every distance.
    """
    from proxyhash.index.model_calibration import calibrate_model

    with progress_bars() as progress:
        found = calibrate_model(model, data, protocol, data_dir, progress)
    pairs, radius = int(found.pairs.sum()), found.radius()
    shares = [f"{bits:>4} bits  {100 * found.precision[bits]:.1f} % same label" for bits in _some(len(found.precision))]
    print_result(
        {"model": str(model), "pairs": pairs, "precision": found.precision.tolist(), "radius": radius},
        f"{pairs:,} pairs; the expected precision of {model}:",
        *shares,
        f"A match is more likely right than wrong up to {radius} bits.",
        as_json=json_,
    )


def _print_rows(rows: list[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, value in rows:
        table.add_row(cell(name), cell(value))
    SafeConsole(highlight=False).print(table)


def open_index(location: str | Path, model: Path | None = None, bits: int | None = None) -> "Index":
    """Open an index, or create one for a model or for codes of some bits."""
    from proxyhash.index import Index

    return Index.open(location, model=model, bits=bits)


def open_local_index(location: str | Path, progress: Progress = no_progress) -> "LocalIndex":
    """Open an index in a folder, for commands that a server does not offer."""
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.milvus.location import is_milvus

    if is_milvus(location):
        raise InputError(f"This is for an index in a folder; {location} is on a server, which maintains itself.")
    return LocalIndex.open_folder(Path(location), progress=progress)


def _some(count: int) -> list[int]:
    """Return about ten distances that show a curve."""
    return sorted({round(part * (count - 1) / 10) for part in range(6)})
