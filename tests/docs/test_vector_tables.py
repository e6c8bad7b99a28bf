"""The tables of encodings show the numbers of their records."""

import json
import re
from pathlib import Path

import pytest

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
            *(f"{value:.3f}" for value in (*row["recall"].values(), row["map"])),
        ]
        for row in record["rows"]
    ]
    assert shown == expected
    assert all(sentence in section for sentence in record["advice"])
    assert {"commit", "date", "versions", "machine"} <= record.keys()
