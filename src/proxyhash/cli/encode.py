"""`proxyhash encode` and `proxyhash export`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Device, Flag, Int, Json
from proxyhash.cli.progress import counting_bar, progress_bars
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.errors import InputError
from proxyhash.utils.process_rank import get_process_rank
from proxyhash.utils.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyhash.data import FileImages, SkippedItems
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.precision import Precision
    from proxyhash.models.vector_hasher import VectorHasher

Said = tuple[dict[str, object], str]
"""What was done, for programs and for people."""


def encode(
    model: Path,
    images: Path,
    /,
    *,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    shards: Path | None = None,
    shard_size: Int | None = None,
    strict: Annotated[bool, Flag] = False,
    device: Device = "auto",
    precision: Literal["float32", "bfloat16", "float16"] = "float32",
    json_: Json = False,
) -> None:
    """Turn images or vectors into codes: an .npz file with the arrays codes (packed), keys and bits, or shards of them.

      proxyhash encode model photos/ -o codes.npz
      proxyhash encode encoder vectors.npy -o codes.npz
      torchrun --nproc-per-node 8 --no-python proxyhash encode model photos/ --shards codes/

    With --shards, each process takes its share (by RANK and WORLD_SIZE, as torchrun sets them) and waits for no other. Run
    the same command again, with as many processes as you like, and it goes on: shards that are whole stay.

    Parameters
    ----------
    model
        The folder of a trained model, or of an encoder of vectors by `proxyhash fit`.
    images
        An image, or a folder of images in any layout; for an encoder of vectors, a file of vectors (`proxyhash fit --help`).
        With --shards also a list (a text file with a path in each line), a .tar file, or a folder of .tar files, in the
        layout of webdataset.
    output
        The .npz file.
    shards
        A folder for shards of codes, instead of one file; import them with proxyhash index import.
    shard_size
        Images in a shard, 8,192 by default; a .tar file is always one shard.
    strict
        Stop at the first image that cannot be read, instead of leaving it out.
    device
        auto (a GPU if there is one, with several processes a GPU each), cpu, cuda, cuda:1 or mps.
    precision
        Precision of the network; less than float32 is faster on a GPU and changes some bits.
    json_
        Print JSON: how much was written, and what was left out.
    """
    from proxyhash.data import SkippedItems

    if (output is None) == (shards is None) or (shard_size is not None and shards is None):
        raise InputError("Say where the codes go: -o FILE.npz, or --shards FOLDER, perhaps with --shard-size.")
    skipped, load = SkippedItems(strict), partial(_load, model, device, precision)
    if shards is not None:
        facts, summary = _encode_shards(load, images, shards, shard_size, skipped)
    else:
        assert output is not None
        facts, summary = _encode_file(load, images, output, skipped)
    left_out = (f"Left out: {sentence}" for sentence in skipped.sentences())
    print_result({**facts, "skipped": skipped.as_dict()}, *left_out, summary, as_json=json_)


def _load(model: Path, device: str, precision: "Precision") -> "Hasher":
    from proxyhash.models.hasher import Hasher

    return Hasher.load(model, device, precision=precision)


def _encode_file(load: "Callable[[], Hasher]", images: Path, output: Path, skipped: "SkippedItems") -> Said:
    from proxyhash.codes.files import write_code_file
    from proxyhash.data import FileImages
    from proxyhash.models.vector_hasher import VectorHasher

    check_writable(output)
    hasher = load()
    if isinstance(hasher, VectorHasher):
        return _encode_vectors(hasher, images, output)
    with progress_bars() as progress:
        found = FileImages(images.parent, [images.name]) if images.is_file() else _list_images(images, skipped, progress)
        kept, embeddings = hasher.embed(found, on_error="skip", skipped=skipped, progress=progress)
    if not len(kept):
        raise InputError(f"None of the images in {images} could be read.")
    keys = [found.key(int(index)) for index in kept]
    write_code_file(output, hasher.head.encode(embeddings), hasher.bits, keys)
    facts = {"codes": len(kept), "bits": hasher.bits, "file": str(output)}
    return facts, f"{len(kept):,} codes of {hasher.bits} bits are in {output}."


def _encode_vectors(hasher: "VectorHasher", path: Path, output: Path) -> Said:
    from proxyhash.codes.files import write_code_file
    from proxyhash.data.vectors import read_vectors

    file = read_vectors(path)
    with progress_bars() as progress:
        codes = hasher.encode(file.rows(), progress=progress)
    keys = [str(row) for row in range(len(file))] if file.keys is None else file.keys
    write_code_file(output, codes, hasher.bits, keys)
    facts: dict[str, object] = {"codes": len(codes), "bits": hasher.bits, "file": str(output)}
    return facts, f"{len(codes):,} codes of {hasher.bits} bits are in {output}."


def _list_images(folder: Path, skipped: "SkippedItems", progress: Progress) -> "FileImages":
    """Return the images of a folder whose names can be keys, and count the rest."""
    from proxyhash.data import FileImages, load_dataset
    from proxyhash.data.readers.listing import utf8_names

    dataset = load_dataset(folder, strict=skipped.strict, progress=progress)
    skipped.update(dataset.skipped)
    images = dataset.images
    assert isinstance(images, FileImages)  # a path is always a folder of files
    return FileImages(images.root, [images.names[number] for number in utf8_names(images.names, skipped)])


def _encode_shards(
    load: "Callable[[], Hasher]", images: Path, folder: Path, size: int | None, skipped: "SkippedItems"
) -> Said:
    from proxyhash.data.shards import SHARD_SIZE, list_shards
    from proxyhash.models.code_shards import encode_shards
    from proxyhash.models.vector_hasher import VectorHasher

    rank = get_process_rank()
    check_writable(folder / "shard")
    hasher = load()
    if isinstance(hasher, VectorHasher):
        raise InputError(f"{hasher.folder} encodes vectors, which go to one file: -o FILE.npz.")
    shards = list_shards(images, SHARD_SIZE if size is None else size, skipped)
    with counting_bar(f"encoding, process {rank.rank} of {rank.world}", "shards") as count:
        done = encode_shards(hasher, shards, folder, skipped, rank=rank, on_shard=count)
    rate = f" at {done.images / done.seconds:,.0f} images/s" if done.images >= 100 else ""
    who = f"Process {rank.rank} of {rank.world}: " if rank.world > 1 else ""
    summary = {"written": done.written, "existing": done.existing, "images": done.images, "bits": hasher.bits}
    return (
        {**summary, "folder": str(folder)},
        f"{who}{done.written:,} shards written, {done.existing:,} existed; {done.images:,} images encoded{rate}.",
    )


def export(model: Path, /, *, output: Annotated[Path, Parameter(alias="-o")], json_: Json = False) -> None:
    """Write a model as an ONNX file: pixels (n, 3, size, size) from 0 to 255 in, nu (n, bits) out; its signs are the code.

    An encoder of vectors has vectors (n, width) in.

    Parameters
    ----------
    model
        The folder of a trained model.
    output
        The .onnx file.
    json_
        Print JSON: the shapes of what goes in and comes out.
    """
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.onnx_export import export_onnx, export_vector_onnx
    from proxyhash.models.vector_hasher import VectorHasher

    check_writable(output)
    hasher = Hasher.load(model)
    if isinstance(hasher, VectorHasher):
        export_vector_onnx(hasher.network, output, hasher.width)
        shapes = {"vectors": [None, hasher.width], "nu": [None, hasher.head.out_features]}
        print_result(
            {"file": str(output), **shapes},
            f"{output}: vectors (n, {hasher.width}) -> nu (n, {hasher.head.out_features}); signs verified.",
            as_json=json_,
        )
        return
    export_onnx(hasher.network, output, hasher.transform.size)
    size, outputs = hasher.transform.size, hasher.head.out_features
    print_result(
        {"file": str(output), "pixels": [None, 3, size, size], "nu": [None, outputs]},
        f"{output}: pixels (n, 3, {size}, {size}) from 0 to 255 -> nu (n, {outputs}); signs verified.",
        as_json=json_,
    )
