"""Names that release 0.1 wrote to disk, and the names that they have now."""

from collections.abc import Mapping
from typing import Any

# --- Models: config.json, model files, feature caches ---

# --- Training: run folders, checkpoints, optimization settings ---

# --- Methods: settings, saved encoders ---

JOINT_SETTINGS = {"floor": "distance_share"}
"""Settings of the method joint; `floor` 0.0 meant the default, which was 0.75 then."""

# --- Evaluation: metric keys ---

METRICS_FILE = "measured.json"
"""Name of metrics.json in the folder of a model."""

METRIC_KEYS = {"binarisation_error": "binarization_error", "binarisation_histogram": "binarization_histogram"}
"""Keys of metrics.json, of `validation` in config.json and of records."""


def rename_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics under their present keys."""
    return {METRIC_KEYS.get(key, key): value for key, value in metrics.items()}


# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---

# --- Experiments: records, tuned settings ---

# --- Data: splits, transforms ---
