"""Export of all items of an index to a file of another program."""

from collections.abc import Callable
from pathlib import Path

from proxyhash.index.exchange.content import CodeContent
from proxyhash.index.exchange.faiss_files import write_faiss
from proxyhash.index.exchange.formats import choose_format
from proxyhash.index.exchange.npz_files import write_npz
from proxyhash.index.exchange.parquet_files import write_parquet
from proxyhash.index.exchange.usearch_files import write_usearch
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.progress import Progress, no_progress

_WRITERS: dict[str, Callable[[Path, CodeContent], int]] = {
    "faiss": write_faiss,
    "usearch": write_usearch,
    "parquet": write_parquet,
    "npz": write_npz,
}


def write_file(content: CodeContent, path: Path, format: str | None = None, progress: Progress = no_progress) -> int:
    """Write items and codes in a format, by default that of the ending; return their number. See `Index.export_file`."""
    write = _WRITERS[choose_format(path, format)]
    check_writable(path)
    return write(path, content.with_progress(progress, "exporting"))
