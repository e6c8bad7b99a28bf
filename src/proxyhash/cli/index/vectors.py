"""Files of vectors on the command line: adding them to an index, and searching with them."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.cli.output import print_result
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyhash.data.vectors import VectorFile
    from proxyhash.index.refinement.refiner import Kind
    from proxyhash.index.results import Matches


@dataclass(frozen=True)
class VectorOptions:
    """Options for files of vectors."""

    vector_column: str | None = None
    key_column: str | None = None
    label_columns: tuple[str, ...] = ()
    keep_vectors: bool = False
    columns: tuple[str, ...] | None = None

    def read(self, path: Path) -> "VectorFile":
        """Open a file of vectors."""
        from proxyhash.data.vectors import read_vectors

        return read_vectors(
            path,
            vector_column=self.vector_column,
            key_column=self.key_column,
            label_columns=self.label_columns,
            columns=self.columns,
        )

    def check_unused(self, path: Path) -> None:
        """Raise an InputError if the options or the file are for vectors, but the model takes images."""
        if path.is_file() and path.suffix.lower() in (".npy", ".npz", ".safetensors", ".parquet"):
            raise InputError(f"{path} is a file of vectors, and the model of the index does not take vectors.")
        if replace(self, columns=None) != VectorOptions():
            raise InputError(
                "Columns of a table and --keep-vectors are for vectors, and the model of the index does not take vectors."
            )


def takes_vectors(location: str, model: Path | None, device: str) -> bool:
    """Return whether the model of an index takes vectors: of an existing one, or that of a new one."""
    from proxyhash.index import Index
    from proxyhash.index.vector_sync import is_vector_model

    if model is not None:
        return is_vector_model(model)
    with Index.open(location, device=device) as opened:
        return opened.width is not None


def add_vector_file(
    path: Path,
    location: str,
    model: Path | None,
    options: VectorOptions,
    *,
    refine: "Kind | None",
    prefix: str,
    prune: bool,
    as_json: bool,
) -> None:
    """Add a file of vectors to an index. It is checked completely before an index is made or written to."""
    from proxyhash.index import Index
    from proxyhash.index.vector_sync import add_vectors, check_vectors_for

    file = options.read(path)
    with progress_bars() as progress:
        if model is not None:
            check_vectors_for(file, model, prefix, progress)
        with Index.open(location, model=model, refine=refine) as opened:
            done = add_vectors(
                opened,
                file,
                prefix=prefix,
                prune=prune,
                keep_vectors=options.keep_vectors,
                is_checked=model is not None,
                progress=progress,
            )
            total = len(opened)
    encoded = done.added + done.replaced
    rate = f" at {encoded / done.seconds:,.0f} vectors/s" if encoded >= 100 else ""
    print_result(
        {**asdict(done), "items": total},
        f"{done.added:,} added, {done.replaced:,} replaced, {done.unchanged:,} unchanged, {done.removed:,} removed{rate}. "
        f"{location} holds {total:,} items.",
        as_json=as_json,
    )


def search_vectors(
    path: Path, column: str | None, find: "Callable[..., list[Matches]]", rerank: int | None
) -> "list[Matches]":
    """Search with the vectors of a file; each is named by its key, or by its file and row."""
    file = VectorOptions(column, columns=()).read(path)
    found = find(file.values, rerank)
    names = file.keys or [f"{path.name}:{row}" for row in range(len(file))]
    return [replace(matches, query=name) for name, matches in zip(names, found, strict=True)]
