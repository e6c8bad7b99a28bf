"""Records as tables and pictures: beside the paper's numbers, on one page that needs no network."""

from proxyhash.report.comparison import Comparison, compare
from proxyhash.report.page import write_page
from proxyhash.report.export import as_csv, as_markdown

__all__ = ["Comparison", "as_csv", "as_markdown", "compare", "write_page"]
