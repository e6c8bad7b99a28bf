"""`proxyhash index import`: codes from files of other programs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proxyhash.cli.index.opening import open_index
from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Json
from proxyhash.cli.progress import counting_bar
from proxyhash.utils.errors import InputError


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
                    f"{index_} holds codes of a model, and {codes} does not name the model of its codes; add the images."
                )
            done = opened.add(packed, keys, labels)
            total = len(opened)
    sentence = f"{done.added:,} added, {done.replaced:,} replaced. {index_} holds {total:,} items of {bits} bits."
    print_result({"added": done.added, "replaced": done.replaced, "items": total, "bits": bits}, sentence, as_json=json_)
