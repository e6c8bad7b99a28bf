"""The numbers that the paper reports."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper in percent: methods by code lengths."""

    title: str
    protocol: str
    metric: str
    bits: tuple[int, ...]
    rows: Mapping[str, tuple[float, ...]]
    data: str | None = None  # the data set; None if the protocol implies it

    def value(self, row: str, bits: int) -> float | None:
        """Return the paper's number, or None."""
        if row not in self.rows or bits not in self.bits:
            return None
        found = self.rows[row][self.bits.index(bits)]
        return None if math.isnan(found) else found


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """Return all tables of the paper."""
    content = tomllib.loads(resources.files(__package__).joinpath("paper.toml").read_text(encoding="utf-8"))
    return tuple(
        PaperTable(
            **{**table, "bits": tuple(table["bits"]), "rows": {name: tuple(row) for name, row in table["rows"].items()}}
        )
        for table in content["table"]
    )


def paper_value(data: str, protocol: str, metric: str, row: str, bits: int) -> float | None:
    """Return the paper's number in percent for a method (`shclm+triplet` for the joint loss) and a code length."""
    for table in paper_tables():
        if (table.protocol, table.metric) == (protocol, metric) and table.data in (None, data):
            return table.value(row, bits)
    return None
