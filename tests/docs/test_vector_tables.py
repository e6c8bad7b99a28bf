"""The tables of encodings show the numbers of their records."""

import json
import re
from pathlib import Path

import pytest

from proxyhash.experiments.vectors import EncodingResult
from proxyhash.experiments.vectors.report import choose

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "vectors-table.md"


@pytest.mark.parametrize("path", sorted((PROJECT / "results" / "vectors").glob("*.json")), ids=lambda path: path.stem)
def test_the_table_has_the_numbers_of_the_record(path: Path) -> None:
    record, text = json.loads(path.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    section = text.split(f"<!-- table: {path.stem} -->")[1].split("\n## ")[0]
    shown = [[part.strip() for part in line.strip("|").split("|")] for line in re.findall(r"^\| .*\|$", section, re.M)][1:]
    expected = [
        [
            row["name"] if row["bits"] is None else f"{row['name']}, {row['bits']} bits",
            f"{row['bytes_per_item']:,}",
            *("" if value is None else f"{value:.3f}" for value in (*row["recall"].values(), row["map"])),
        ]
        for row in record["rows"]
    ]
    assert shown == expected
    rows = [
        EncodingResult(**{**row, "recall": {int(k): part for k, part in row["recall"].items()}}) for row in record["rows"]
    ]
    assert all(sentence in section for sentence in choose(rows, 10))
    assert {"commit", "date", "versions", "machine"} <= record.keys()
