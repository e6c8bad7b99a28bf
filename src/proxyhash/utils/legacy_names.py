"""Names that release 0.1 wrote to disk, and the names that they have now."""

from collections.abc import Mapping
from typing import Any

# --- Models: config.json, model files, feature caches ---

# --- Training: run folders, checkpoints, optimization settings ---

OPTIM_FIELDS = {
    "batch": "batch_size",
    "rate": "lr",
    "backbone_rate": "backbone_lr",
    "hidden": "hidden_dim",
    "growth": "progressive_resize",
    "ema": "ema_decay",
    "momentum": "bn_momentum",
    "freeze_statistics": "freeze_bn",
    "clip": "grad_clip",
}


def upgrade_optim_config(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an `OptimConfig` from a `plan` of release 0.1, whose seed is not among them."""
    return {OPTIM_FIELDS.get(name, name): value for name, value in plan.items() if name != "seed"}


def downgrade_optim_config(optim: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the `plan` of release 0.1 for the fields of an `OptimConfig`; the keys of records are hashes of it."""
    old_names = {new: old for old, new in OPTIM_FIELDS.items()}
    return {old_names.get(name, name): value for name, value in optim.items()} | {"seed": seed}


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
