"""Reader of folders with a `metadata.csv`: `file_name`, optionally `split`, `label` or `tags`, and any other columns."""

import csv
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TextIO

import numpy as np

from proxyhash.columns import RESERVED, UntypedTexts
from proxyhash.data.dataset import NO_SPLIT, SPLITS, Dataset
from proxyhash.data.images import FileImages
from proxyhash.data.readers.folder import SPLIT_NAMES
from proxyhash.data.readers.listing import OUTSIDE, dataset_name, is_inside, list_images, resolve_root
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

METADATA = "metadata.csv"
_COLUMNS = ("file_name", "label", "tags", "split")
MISSING = "row whose file is missing"
TWICE = "second row of a file"
NAMELESS = "row without a file name"
UNLISTED = "image without a row"
MAX_LINE = 1_000_000  # characters; longer lines are refused before they fill the memory


@dataclass(frozen=True)
class _Row:
    name: str
    split: int
    text: str  # the label, or all tags
    others: tuple[str | None, ...] = ()  # values of the other columns


def load_metadata(path: Path, *, strict: bool = False, progress: Progress = no_progress) -> Dataset:
    """Read the table and find its files; nothing is decoded yet."""
    root, skipped = resolve_root(path), SkippedItems(strict)
    rows = list(_usable_rows(root, skipped, progress))
    if not rows:
        why = f" ({'; '.join(skipped.sentences())})" if skipped else ""
        raise InputError(f"{root / METADATA} names no image that is there{why}.")
    _count_unlisted(root, {row.name for row in rows}, skipped)
    images = FileImages(root, [row.name for row in rows])
    parts = np.array([row.split for row in rows], np.int8)
    texts, header = [row.text for row in rows], _header(root)
    labels = parse_tags(texts) if "tags" in header else ClassLabels.from_names(texts)
    values = zip(*(row.others for row in rows), strict=True)
    columns = {name: UntypedTexts(column) for name, column in zip(_other_columns(header), values, strict=True)}
    return Dataset(
        dataset_name(root), images, labels if labels.names else None, splits=parts, skipped=skipped, columns=columns
    )


def parse_tags(texts: list[str]) -> TagLabels:
    """Return the tags of each text, their names sorted.

    One separator serves the whole column, so that in `sky; palm tree` and `palm tree` the last is one tag.
    """
    separator = next((mark for mark in ";," if any(mark in text for text in texts)), None)
    sets = [{tag.strip() for tag in text.split(separator) if tag.strip()} for text in texts]
    names = tuple(sorted(set().union(*sets)))
    position = {name: number for number, name in enumerate(names)}
    matrix = np.zeros((len(texts), len(names)), bool)
    for row, tags in zip(matrix, sets, strict=True):
        row[[position[tag] for tag in tags]] = True
    return TagLabels(matrix, names)


def _header(root: Path) -> list[str]:
    with (root / METADATA).open(newline="", encoding="utf-8-sig") as handle:
        return _columns(next(csv.reader(handle), []))


def _columns(header: Iterable[str]) -> list[str]:
    """Return the names of columns as we know them: `File_Name, Label` is not worth an error."""
    names = [name.strip() for name in header]
    return [name.lower() if name.lower() in _COLUMNS else name for name in names]


def _other_columns(header: Iterable[str]) -> list[str]:
    """Return the columns that filters may use; names with another meaning are left out."""
    return [name for name in dict.fromkeys(header) if name and name not in _COLUMNS and name.lower() not in RESERVED]


def _count_unlisted(root: Path, listed: set[str], skipped: SkippedItems) -> None:
    """Count the images in the folder that no row names: the table decides, but what it omits is reported."""
    for name in list_images(root, "", SkippedItems()):
        if name not in listed:
            skipped.ignore(UNLISTED, name)


def _usable_rows(root: Path, skipped: SkippedItems, progress: Progress) -> Iterator[_Row]:
    """Yield the rows whose file is there and inside the folder, each file once."""
    table, seen = root / METADATA, set()
    others: list[str] | None = None
    for line, row, fraction in _table(table):
        progress(f"reading {METADATA}", fraction)
        name = PurePosixPath((row["file_name"] or "").strip().replace("\\", "/")).as_posix()
        if name == ".":
            skipped.add(NAMELESS, f"line {line}")
        elif name in seen:
            skipped.add(TWICE, name)
        elif name.startswith("/") or not is_inside(root, root / name):
            skipped.add(OUTSIDE, name)
        elif not os.path.isfile(root / name):  # noqa: PTH113  Path.is_file raises for names that are too long
            skipped.add(MISSING, name)
        else:
            seen.add(name)
            text = (row.get("label") or row.get("tags") or "").strip()
            if others is None:
                others = _other_columns(column for column in row if column is not None)
            yield _Row(name, _split(row, name, table), text, tuple(row.get(column) for column in others))
    progress(f"reading {METADATA}", 1.0)


def _table(table: Path) -> Iterator[tuple[int, dict[str, str | None], float]]:
    """Yield the number of each row's line, the row, and the share of the file that is read.

    The dialect is strict, and names and labels are on one line: a quote that is not closed would otherwise hide the rows
    up to the next quote.
    """
    size, line = max(1, table.stat().st_size), 1
    try:
        with table.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(_lines(handle, table), strict=True)
            reader.fieldnames = _columns(reader.fieldnames or [])
            _check_columns(table, list(reader.fieldnames))
            done, line = 0, reader.line_num + 1
            for row in reader:
                if any(mark in (row.get(column) or "") for column in _COLUMNS for mark in "\r\n"):
                    raise InputError(_quote_message(table, line))
                done += sum(len(value or "") + 1 for key, value in row.items() if key is not None)
                yield reader.line_num, row, min(1.0, done / size)
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise InputError(f"{table} is not UTF-8 text (line {_undecodable_line(table)}); save it as UTF-8.") from error
    except OSError as error:
        raise InputError(f"{table} cannot be read: {error.strerror}.") from error
    except csv.Error as error:
        raise InputError(_csv_message(table, line, error)) from error


def _lines(handle: TextIO, table: Path) -> Iterator[str]:
    """Yield the lines of a table, and refuse one that is too long."""
    number = 0
    while text := handle.readline(MAX_LINE):
        number += 1
        if len(text) == MAX_LINE:
            raise InputError(
                f"{table} has more than {MAX_LINE:,} characters in line {number}, which no table of images needs."
            )
        yield text


def _csv_message(table: Path, line: int, error: csv.Error) -> str:
    """Return a sentence about the row that begins in a line and cannot be read."""
    if "field limit" in str(error):
        limit = f"{csv.field_size_limit():,} characters"
        return f"{table} has a field of more than {limit} in the row that begins in line {line}; is a quote not closed?"
    return _quote_message(table, line)


def _quote_message(table: Path, line: int) -> str:
    return (
        f"{table} has a quote in line {line} that is not closed, or that does not enclose a whole field; "
        "write a quote inside a quoted field twice."
    )


def _undecodable_line(table: Path) -> int:
    content = table.read_bytes()
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return content[: error.start].count(b"\n") + 1
    return 0


def _check_columns(table: Path, columns: list[str]) -> None:
    if "file_name" not in columns:
        raise InputError(f"{table} has no column file_name in its first line.")
    if {"label", "tags"} <= set(columns):
        raise InputError(f"{table} has both label and tags; keep the column that says which images are alike.")


def _split(row: dict[str, str | None], name: str, table: Path) -> int:
    """Return the split of the column `split`, or else the split of the file's first folder."""
    if "split" in row:
        split = (row["split"] or "").strip().lower()
        if split and split not in SPLIT_NAMES:
            known = ", ".join(SPLIT_NAMES)
            raise InputError(f"{table} puts {name} into the split {split!r}, which is none of {known}.")
        return SPLITS.index(SPLIT_NAMES[split]) if split else NO_SPLIT
    folder = name.split("/", 1)[0].lower() if "/" in name else ""
    return SPLITS.index(SPLIT_NAMES[folder]) if folder in SPLIT_NAMES else NO_SPLIT
