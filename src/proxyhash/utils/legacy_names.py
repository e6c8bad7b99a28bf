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

# --- Evaluation: metric keys ---

# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---


class IndexNames:
    """Tables, columns and rows of the SQLite file of an index, `user_version` 1.

    Statements use these names until the schema is migrated.
    """

    META = "facts"  # table (name, value)
    ACTIVE_VERSION = "live"  # row of META: the version that is searched
    GENERATION = "generation"  # row of META: counts committed transactions
    NEXT_ID = "next"  # row of META: the next item id
    VERSIONS = "editions"  # table (number, bits, model, centres, grouped_at)
    CENTROIDS = "centres"
    CLUSTERED_AT = "grouped_at"
    VERSION = "edition"  # columns of table blocks
    GENERATION_WRITTEN = "version"
    MIN_ID, MAX_ID = "low", "high"
    CLUSTERS = "groups"
    ITEM_IDS = "positions"
    ITEM_ID = "position"  # columns of table items
    MTIME_NS = "modified"


INDEX_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE editions(
    number INTEGER PRIMARY KEY, bits INTEGER NOT NULL, model TEXT, centres BLOB, grouped_at INTEGER NOT NULL);
CREATE TABLE blocks(
    edition INTEGER NOT NULL, number INTEGER NOT NULL, version INTEGER NOT NULL, count INTEGER NOT NULL,
    low INTEGER NOT NULL, high INTEGER NOT NULL, checksum INTEGER NOT NULL,
    groups BLOB NOT NULL, positions BLOB NOT NULL, codes BLOB NOT NULL, PRIMARY KEY(edition, number));
CREATE TABLE sources(number INTEGER PRIMARY KEY, path TEXT NOT NULL, prefix TEXT NOT NULL, UNIQUE(path, prefix));
CREATE TABLE items(
    position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, labels TEXT, source INTEGER, size INTEGER, modified INTEGER);
INSERT INTO facts VALUES ('live', 1), ('generation', 1), ('next', 0);
"""

MILVUS_ITEM_ID = "position"  # field of a collection

# --- Experiments: records, tuned settings ---

# --- Data: splits, transforms ---
