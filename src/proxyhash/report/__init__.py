"""Reports of experiment records: tables beside the paper's numbers, figures, and one HTML page."""

from proxyhash.report.comparison import Comparison, compare
from proxyhash.report.export import to_csv, to_markdown
from proxyhash.report.page import write_page

__all__ = ["Comparison", "compare", "to_csv", "to_markdown", "write_page"]
