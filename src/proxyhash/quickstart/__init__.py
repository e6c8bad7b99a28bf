"""Quickstart: from a folder of images to a model, an index and a report."""

from proxyhash.quickstart.config import OutputPaths, Overrides, QuickstartConfig, choose_config
from proxyhash.quickstart.steps import Step, quickstart_steps
from proxyhash.quickstart.summary import DatasetSummary, summarize

__all__ = [
    "DatasetSummary",
    "OutputPaths",
    "Overrides",
    "QuickstartConfig",
    "Step",
    "choose_config",
    "quickstart_steps",
    "summarize",
]
