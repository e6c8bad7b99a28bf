"""`proxyhash fit`: an encoder of vectors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Device, Int, Json, split_ints
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.data.vectors import VectorFile
    from proxyhash.labels import Labels

DEFAULT_BITS = 256


def fit(
    vectors: Path,
    /,
    *,
    bits: str | None = None,
    labels: Path | None = None,
    tags: Path | None = None,
    method: str | None = None,
    normalize: bool = True,
    vector_column: str | None = None,
    label_column: tuple[str, ...] = (),
    epochs: Int | None = None,
    batch_size: Int | None = None,
    lr: float | None = None,
    hidden_dim: Int | None = None,
    seed: Int = 0,
    device: Device = "auto",
    json_: Json = False,
    output: Annotated[Path, Parameter(alias="-o")],
) -> None:
    """Fit an encoder of vectors: binary codes of embeddings of text, images or anything else.

      proxyhash fit vectors.npy --bits 256 -o encoder
      proxyhash fit vectors.npy --labels labels.npy --bits 64 --method shclm -o encoder
      proxyhash fit documents.parquet --vector-column embedding --bits 128,256,512 -o encoders

    Then encode, index and search:

      proxyhash index add vectors.npy --index documents.index --model encoder
      proxyhash search documents.index --vectors queries.npy

    Parameters
    ----------
    vectors
        A .npy file, a .npz or .safetensors file with an array `vectors` (and perhaps `labels` or `tags`), a .parquet file or
        a folder of them, or a folder that the library datasets saved; float16 or float32, any width.
    bits
        Code length, by default 256, or the width of the vectors if that is less. Several with commas give a model each, in
        output/64, output/128 and so on.
    labels
        A .npy or .npz file of classes (integers or texts), or a .txt file with one in each line. -1 and an empty text stand
        for an unknown class.
    tags
        A .npz or .npy file with a matrix of 0 and 1, a row for each vector.
    method
        A method (`proxyhash methods`) with settings as in itq:iterations=20. By default itq, which needs no labels, and with
        labels shclm.
    normalize
        Scale vectors to length 1, so that codes follow the cosine; --no-normalize for Euclidean distances.
    vector_column
        The column of vectors of a table; by default the only column of lists of floats.
    label_column
        The column of labels of a table, or several for tags; by default label, labels or tags.
    epochs
        Passes over the vectors, for methods that train; by default 12.
    batch_size
        Vectors per step, for methods that train; by default 256.
    lr
        Learning rate, for methods that train; by default 0.005.
    hidden_dim
        Units of the hidden layer, for methods that train, 0 for none; by default 2048.
    seed
        Seed of every random draw.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps, for methods that train.
    json_
        Print JSON: the models with their configuration.
    output
        Folder of the model.
    """
    from proxyhash.data.vectors import read_vectors
    from proxyhash.methods import get_method, parse_method
    from proxyhash.training.config import OptimConfig
    from proxyhash.training.run import model_folders
    from proxyhash.training.vectors import DEFAULT_LABELED_METHOD, DEFAULT_METHOD, fit_vectors

    file = read_vectors(vectors, vector_column=vector_column, label_columns=label_column)
    lengths = split_ints("bits", bits) or (min(DEFAULT_BITS, file.values.shape[1]),)
    folders = model_folders(output, lengths)
    known = _read_labels(file, labels, tags)
    name, settings = parse_method(method or (DEFAULT_METHOD if known is None else DEFAULT_LABELED_METHOD))
    changes = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "hidden_dim": hidden_dim}
    given = [option for option, value in changes.items() if value is not None]
    if given and not get_method(name).trains:
        raise get_method(name).option_error(given[0])
    options: dict[str, Any] = {"method": name, "settings": settings, "optim": OptimConfig.frozen(**changes)}
    with progress_bars() as progress:
        options |= {"labels": known, "normalize": normalize, "seed": seed, "device": device, "progress": progress}
        hashers = [fit_vectors(file.rows(), length, **options) for length in lengths]
    for hasher, folder in zip(hashers, folders, strict=True):
        hasher.save(folder)
    count, width = file.values.shape
    models = [{"model": str(hasher.folder), **hasher.metadata} for hasher in hashers]
    print_result(
        {"models": models, "vectors": count, "width": width},
        f"Fitted {name} on {count:,} vectors of {width} values.",
        f"Saved {', '.join(map(str, folders))}",
        as_json=json_,
    )


def _read_labels(file: "VectorFile", labels: Path | None, tags: Path | None) -> "Labels | None":
    """Return the labels of a file of their own, or those beside the vectors."""
    from proxyhash.data.vectors import read_labels, read_tags

    if labels is not None and tags is not None:
        raise InputError("Give --labels or --tags, not both.")
    if labels is not None:
        return read_labels(labels, len(file))
    return read_tags(tags, len(file)) if tags is not None else file.labels
