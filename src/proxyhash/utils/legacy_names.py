"""Names that release 0.1 wrote to disk, and the names that they have now."""

import re
from collections.abc import Mapping
from typing import Any

# --- Models: config.json, model files, feature caches ---

MODEL_FORMAT = "proxyhash.hasher/1"
MODEL_KEYS = {"names": "class_names", "record": "metadata"}
HEAD_KEYS = {"width": "in_features", "hidden": "hidden_dim", "outputs": "out_features"}
HEAD_KINDS = {"softmax-quantised": "softmax-quantized", "unit-quantised": "unit-quantized"}
DEFAULT_HEAD = "tanh"  # release 0.1 described this head without its kind
SHARD_FORMAT = "proxyhash.shard/1"
SHARD_HEADER = "facts"  # the array that held the fields below
SHARD_KEYS = {"piece": "images", "of": "total", "left_out": "num_skipped"}
CROPS = {"window": "random_crop", "padded": "pad_shift", "area": "random_resized"}


def upgrade_model_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a config.json with today's names; today's names stay."""
    upgraded = _renamed(config, MODEL_KEYS)
    if isinstance(upgraded.get("head"), Mapping):
        upgraded["head"] = upgrade_head_config(upgraded["head"])
    if isinstance(upgraded.get("transform"), Mapping):
        crop = upgraded["transform"].get("crop")
        upgraded["transform"] = {**upgraded["transform"], "crop": CROPS.get(crop, crop)}
    return upgraded


def upgrade_head_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a head with today's names, its kind included."""
    kind = config.get("kind", DEFAULT_HEAD)
    return {**_renamed(config, HEAD_KEYS), "kind": HEAD_KINDS.get(kind, kind)}


def model_fingerprint_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return backbone, head and transform as release 0.1 wrote them.

    A model's fingerprint is a hash of these, and indexes and code shards name their model by it.
    """
    head = _renamed(config["head"], _inverse(HEAD_KEYS))
    kind = head.pop("kind")
    if kind != DEFAULT_HEAD:
        head["kind"] = _inverse(HEAD_KINDS).get(kind, kind)
    transform = {**config["transform"], "crop": feature_cache_crop(config["transform"]["crop"])}
    return {"backbone": config["backbone"], "head": head, "transform": transform}


def feature_cache_crop(crop: str) -> str:
    """Return the name of a crop in the keys of the feature cache, which are those of release 0.1."""
    return _inverse(CROPS).get(crop, crop)


def upgrade_shard_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header of a shard of codes with today's names."""
    return _renamed(header, SHARD_KEYS)


def _renamed(mapping: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in mapping.items()}


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


# --- Training: run folders, checkpoints, optimization settings ---

# --- Methods: settings, saved encoders ---

# --- Evaluation: metric keys ---

# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---

# --- Experiments: records, tuned settings ---

# --- Data: splits, transforms ---


def upgrade_split(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a split (`Split.as_dict`) with today's words: a fold was called a round."""
    note = re.sub(r"^((?:rehearsal: [^.]*\. )?)round (\d of 4)", r"\1fold \2", str(split.get("note", "")))
    return {**split, "note": note}
