"""Records as tables and pictures: beside the paper's numbers, on one page that needs no network."""

from proxyhash.report.comparison import Comparison, compare
from proxyhash.report.export import to_csv, to_markdown
from proxyhash.report.page import write_page

__all__ = ["Comparison", "compare", "to_csv", "to_markdown", "write_page"]
