"""`proxyhash index export` and `import`: codes for and from other programs."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from proxyhash.cli.index.opening import open_index
from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Int, Json
from proxyhash.cli.progress import counting_bar, progress_bars
from proxyhash.utils.errors import InputError


def export(
    index_: Annotated[str, Parameter(name="index")],
    out: Path,
    /,
    *,
    format_: Annotated[str | None, Parameter(name="--format")] = None,
    json_: Json = False,
) -> None:
    """Write all items and codes to a file of faiss, usearch, parquet or numpy.

      proxyhash index export photos.index photos.faiss
      proxyhash index export photos.index photos.parquet

    faiss and usearch hold codes and integer ids only: keys, labels and paths are written to OUT.items.jsonl, in the order of
    the ids. An index in a folder is exported in one state, while others write.

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    out
        The file to write; an old one is replaced when the new one is complete.
    format_
        faiss, usearch, parquet or npz; by default, the ending of the file decides.
    json_
        Print JSON.
    """
    with open_index(index_) as opened, progress_bars() as progress:
        count, bits = opened.export_file(out, format_, progress=progress), opened.bits
    print_result(
        {"items": count, "bits": bits, "path": str(out)},
        f"{out} holds the {count:,} items of {index_}, {bits} bits each.",
        as_json=json_,
    )


def import_(
    codes: Path,
    /,
    *more: Path,
    index_: Annotated[str, Parameter(name="--index")],
    model: Path | None = None,
    bits: Int | None = None,
    format_: Annotated[str | None, Parameter(name="--format")] = None,
    json_: Json = False,
) -> None:
    """Import codes from a file of faiss, usearch, parquet or numpy, or from folders of shards.

      proxyhash index import codes.npz --index other.index
      proxyhash index import codes.faiss --index other.index --bits 60
      proxyhash index import shards/ --model model --index milvus://localhost:19530/photos

    Everything is read and checked before the index is changed.

    Parameters
    ----------
    codes
        A file that `proxyhash index export` wrote, a binary index of faiss or usearch, a parquet file with a column `code`
        and optionally `key` and `labels`, or an .npz file: packed codes with their length in `bits` (as `proxyhash encode`
        writes it), or a matrix of +-1 or 0/1, and optionally `keys` and `labels`. Or the folder that `proxyhash encode
        --shards` wrote.
    more
        More folders, if several machines wrote shards of one collection.
    index_
        The folder of the index, or its address on a Milvus server; created if it does not exist.
    model
        The model that made the codes, for a new index that is searched with images; shards and exported files name it.
    bits
        The length of the codes, if it is no multiple of 8 and the file does not state it.
    format_
        faiss, usearch, parquet or npz; by default, the ending of the file decides, and files with other endings are npz.
    json_
        Print JSON.
    """
    if codes.is_dir():
        if bits is not None or format_ is not None:
            raise InputError("Shards state their code length and format; leave --bits and --format out.")
        result = _import_shards([codes, *more], index_, model)
    elif more:
        raise InputError("One file is imported at a time.")
    else:
        result = _import_file(codes, index_, model, bits, format_)
    sentence = "{added:,} added, {replaced:,} replaced. {index} holds {items:,} items of {bits} bits."
    print_result(result, sentence.format(**result, index=index_), as_json=json_)


def _import_shards(folders: list[Path], location: str, model: Path | None) -> dict[str, Any]:
    from proxyhash.index.code_import import add_shards, find_shards
    from proxyhash.models.code_shards import read_shard

    paths = find_shards(folders)
    bits = None if model is not None else read_shard(paths[0]).bits
    with open_index(location, model, bits) as opened, counting_bar("importing", "shards") as on_progress:
        done = add_shards(opened, paths, on_progress)
        return {"added": done.added, "replaced": done.replaced, "items": len(opened), "bits": opened.bits}


def _import_file(path: Path, location: str, model: Path | None, bits: int | None, format: str | None) -> dict[str, Any]:
    from proxyhash.index.exchange.importing import add_content, check_model, open_codes
    from proxyhash.models.storage import fingerprint

    with progress_bars() as progress, open_codes(path, format, bits=bits, progress=progress) as content:
        if model is not None:
            check_model(content, fingerprint(model), path)
        with open_index(location, model, content.bits if model is None else None) as opened:
            done = add_content(opened, content, path, progress)
            return {"added": done.added, "replaced": done.replaced, "items": len(opened), "bits": opened.bits}
