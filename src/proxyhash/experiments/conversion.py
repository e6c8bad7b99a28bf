"""Conversion of record folders to the current format, with a check of every value."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proxyhash.experiments.records import RECORDS_FILE, Record, legacy_record_files, parse_record, record_folders
from proxyhash.experiments.tuned import edges_of_record, read_tuned_text
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.json_lines import dump_json_line, parse_json_line, split_json_lines


@dataclass(frozen=True)
class Conversion:
    """Counts of converted records, and the files that the new ones replace."""

    records: int
    values: int  # numbers in their metrics, all compared
    old_files: tuple[Path, ...]


def convert_folder(source: Path, target: Path, tuned: Path | None = None) -> Conversion:
    """Write the records and tuned settings of a folder in the current format and names.

    Every record is read back, and every value of its metrics is compared with the original. Old files are not deleted.

    Parameters
    ----------
    source
        A folder of `proxyhash benchmark` or `proxyhash tune`, or a folder of such folders.
    target
        The folder to write; it may be the same one.
    tuned
        A folder or a file of tuned settings. Records that were made with these note which of them are at an edge.

    Returns
    -------
    Conversion
        The number of records and of compared values, and the files that the new ones replace.

    Raises
    ------
    InputError
        If a record cannot be read, or a value differs after the conversion.
    """
    parts = [_convert_records(folder, target / folder.relative_to(source), tuned) for folder in record_folders(source)]
    converted = [
        _convert_tuned(path, target / path.relative_to(source).parent) for path in sorted(source.rglob("chosen*.toml"))
    ]
    old = tuple(path for _, _, files in parts for path in files)
    return Conversion(
        sum(records for records, _, _ in parts),
        sum(values for _, values, _ in parts),
        (*old, *(path for path in converted if path is not None)),
    )


def _convert_records(source: Path, target: Path, tuned: Path | None) -> tuple[int, int, list[Path]]:
    """Convert one folder; return the number of records, of compared values, and the old files."""
    legacy = legacy_record_files(source)
    texts = [(path.read_bytes(), str(path)) for path in legacy]
    current = source / RECORDS_FILE
    if current.is_file():
        lines = split_json_lines(current.read_bytes())
        texts += [(line, f"line {number} of {current}") for number, line in enumerate(lines, 1)]
    originals = [_parse(text, where) for text, where in texts]
    with atomic_write(target / RECORDS_FILE) as temporary:
        records = (_with_edges(parse_record(original), tuned) for original in originals)
        lines = [dump_json_line(record.as_dict()) for record in records]
        temporary.write_bytes(b"".join(lines))
        written = [parse_json_line(line) for line in split_json_lines(temporary.read_bytes())]
        for (_, where), original, new in zip(texts, originals, written, strict=True):
            if _values(original) != _values(new):
                raise InputError(f"{where} has other values after the conversion; nothing was changed.")
    return len(written), sum(len(_values(new)) for new in written), legacy


def _with_edges(record: Record, tuned: Path | None) -> Record:
    """Return a record with the settings at an edge, if it has the tuned settings."""
    edges = None if tuned is None else edges_of_record(record, tuned)
    return record if edges is None else replace(record, at_edge=edges)


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = parse_json_line(text)
        parse_record(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where} is not a record, or damaged: {str(error).rstrip('.')}.") from error
    return content


def _values(content: dict[str, Any]) -> list[str]:
    """Return code length, times and every value of the metrics as JSON; names do not matter, the order does."""
    return [json.dumps(value) for part in ("bits", "seconds", "metrics") for value in _leaves(content[part])]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def _convert_tuned(path: Path, folder: Path) -> Path | None:
    """Convert one file of tuned settings; return it if its name is an old one."""
    new = folder / path.name.replace("round", "fold")
    with atomic_write(new) as temporary:
        temporary.write_text(read_tuned_text(path), encoding="utf-8")
    return path if path.name != new.name else None
