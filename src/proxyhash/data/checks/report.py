"""Findings of a check, by severity."""

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One finding, with the number of items that it concerns and a few examples."""

    level: Level
    message: str
    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetReport:
    """Summary of a data set, its findings, and the split that was checked."""

    summary: dict[str, object]
    findings: tuple[Finding, ...]
    protocol: dict[str, object] | None = None

    @property
    def worst_level(self) -> Level:
        """Return the most severe level among the findings."""
        order: tuple[Level, ...] = ("ok", "note", "warning", "error")
        return max((finding.level for finding in self.findings), key=order.index, default="ok")

    def as_dict(self) -> dict[str, object]:
        """Return everything for JSON."""
        findings = [asdict(finding) for finding in self.findings]
        return {
            "summary": self.summary,
            "protocol": self.protocol,
            "findings": findings,
            "worst_level": self.worst_level,
        }
