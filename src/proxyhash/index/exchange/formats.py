"""Formats of exchange, chosen by name or by the ending of a file."""

from pathlib import Path

from proxyhash.utils.errors import InputError

FORMATS = ("faiss", "usearch", "parquet", "npz")


def choose_format(path: Path, format: str | None) -> str:
    """Return the format as given, or by the ending of the file.

    >>> choose_format(Path("codes.faiss"), None), choose_format(Path("codes.bin"), "parquet")
    ('faiss', 'parquet')
    """
    for known in FORMATS:
        if format == known or (format is None and path.suffix.lower() == f".{known}"):
            return known
    if format is not None:
        raise InputError(f"There is no format {format!r}; choose one of {', '.join(FORMATS)}.")
    raise InputError(f"{path} has none of the endings .{', .'.join(FORMATS)}; name the format with --format.")
