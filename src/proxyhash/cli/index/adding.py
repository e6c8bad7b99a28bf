"""`proxyhash index add`, `remove`, `upgrade` and `refine`: changes of the items of an index."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from proxyhash.cli.index.opening import open_index, open_local_index
from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Device, Flag, Json, RefinementKind, split_names
from proxyhash.cli.progress import counting_bar
from proxyhash.utils.errors import InputError


def add(
    folder: Path,
    /,
    *,
    index_: Annotated[str, Parameter(name="--index")],
    model: Path | None = None,
    refine: RefinementKind | None = None,
    prefix: str = "",
    prune: Annotated[bool, Flag] = False,
    device: Device = "auto",
    strict: Annotated[bool, Flag] = False,
    vector_column: str | None = None,
    key_column: str | None = None,
    label_column: tuple[str, ...] = (),
    columns: str | None = None,
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
    refine
        Store a finer representation of each item in a new index, which orders items at the same distance: code (128 bits),
        code256, int8 (64 values) or int8x256.
    prefix
        A prefix of the keys, which are otherwise paths inside the folder, or keys of the file, or its name and a row;
        needed for a second folder with the same names.
    prune
        Also remove items of this folder whose files are gone, or of this file whose keys are gone.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    strict
        Stop at the first image that cannot be read, instead of leaving it out.
    vector_column
        The column of vectors in a table; by default the only column of lists of floats.
    key_column
        The column of keys in a table; by default key or id.
    label_column
        A column of labels in a table; may be given several times. By default label, labels or tags.
    columns
        Further columns of a metadata.csv or a table, which --where of a search uses, with commas between them; "" for none.
        By default all that hold numbers, texts or dates.
    keep_vectors
        Store the vectors in the index too, so that an upgrade to another model does not need the file.
    json_
        Print JSON.
    """
    from proxyhash.cli.index.vectors import VectorOptions, add_vector_file, takes_vectors

    chosen = split_names(columns)
    options = VectorOptions(vector_column, key_column, label_column, keep_vectors, chosen)
    if takes_vectors(index_, model, device):
        add_vector_file(folder, index_, model, options, refine=refine, prefix=prefix, prune=prune, as_json=json_)
        return
    options.check_unused(folder)
    from proxyhash.data import SkippedItems
    from proxyhash.index.folder_sync import add_folder

    skipped = SkippedItems(strict)
    with (
        open_index(index_, model, device=device, refine=refine) as opened,
        counting_bar("encoding", "images") as on_progress,
    ):
        done = add_folder(opened, folder, skipped, prefix=prefix, prune=prune, columns=chosen, on_progress=on_progress)
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


def upgrade(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    model: Path,
    drop_unreadable: Annotated[bool, Flag] = False,
    device: Device = "auto",
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
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    json_
        Print JSON.
    """
    from proxyhash.data import SkippedItems
    from proxyhash.index.model_store import load_encoder
    from proxyhash.index.upgrade import upgrade as upgrade_index

    skipped = SkippedItems()
    with open_local_index(index_) as opened, counting_bar("encoding", "items") as on_progress:
        encoder = load_encoder(model, device)
        moved = upgrade_index(opened, encoder, skipped, drop_unreadable=drop_unreadable, on_progress=on_progress)
    left_out = [f"Left out: {sentence}" for sentence in skipped.sentences()]
    facts = {"moved": moved, "skipped": skipped.as_dict()}
    print_result(facts, *left_out, f"{index_}: {moved:,} items have codes of the new model.", as_json=json_)


def refine(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    kind: RefinementKind | Literal["none"],
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Give all items a refinement, which orders items at the same distance, from their files or kept vectors.

      proxyhash index refine photos.index --kind code

    It can be stopped and run again: what was written is kept. Items without a file or a kept vector have no refinement and
    come last among items at the same distance.

    Parameters
    ----------
    index_
        The folder of the index.
    kind
        code (128 bits), code256, int8 (64 values) or int8x256; none removes the refinement.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    json_
        Print JSON.
    """
    from proxyhash.data import SkippedItems
    from proxyhash.index.refinement.backfill import refine_index

    skipped = SkippedItems()
    with open_local_index(index_, device=device) as opened, counting_bar("encoding", "items") as on_progress:
        unreadable = refine_index(opened, None if kind == "none" else kind, skipped, on_progress)
        info = opened.info()
    left_out = [f"Left out: {sentence}" for sentence in skipped.sentences()]
    facts = {"refinement": info.refinement, "refined": info.refined_items, "unreadable": unreadable}
    done = f"{info.refined_items:,} of {info.items:,} items have the refinement {kind}"
    print_result(
        {**facts, "skipped": skipped.as_dict()},
        *left_out,
        f"{index_}: {done if kind != 'none' else 'the refinement was removed'}.",
        as_json=json_,
    )
