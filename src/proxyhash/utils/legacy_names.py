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

METHOD_SETTINGS = {"floor": "distance_share"}
"""Settings of all methods; `floor` 0.0 of the method joint meant the default, which was 0.75 then."""


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

RECORD_FORMAT = "proxyhash.record/1"
RECORD_FILE_PATTERN = r"-[0-9a-f]{12}\.json$"  # one file per record
RECORD_METRICS = {"binarisation_error": "binarization_error", "binarisation_histogram": "binarization_histogram"}
RECORD_TRIAL = {"lengths": "code_lengths", "round": "fold", "plan": "optim"}
RECORD_PROTOCOL = {"judged_on": "eval_on"}

LEGACY_TUNED_FOLD_FILE = "chosen-round-{}.toml"
_TUNED_TABLE = re.compile(r'\[(settings|plans)\.(?:"(.+)"|([\w+-]+))\]')
_TUNED_SCORE = re.compile(r"# ([^,\n]+?)((?:, \w+ \S+)*): mAP (\S+)")


def upgrade_record(content: Mapping[str, Any], current_format: str) -> dict[str, Any]:
    """Return a record of release 0.1 in today's format; other content is returned as it is."""
    if content.get("format") != RECORD_FORMAT:
        return dict(content)
    trial = _rename(content["trial"], RECORD_TRIAL)
    trial["settings"] = _rename(trial["settings"], METHOD_SETTINGS)
    trial["label"] = upgrade_label(trial["label"])
    trial["optim"] = None if trial["optim"] is None else upgrade_optim_config(trial["optim"])
    protocol = _rename(content["protocol"], RECORD_PROTOCOL)
    upgraded = {"trial": trial, "protocol": protocol, "metrics": _rename(content["metrics"], RECORD_METRICS)}
    kept = {name: value for name, value in content.items() if name != "key"}
    return kept | upgraded | {"format": current_format}


def upgrade_label(label: str) -> str:
    """Return a row such as `shclm:per_class=2` with today's names of settings."""
    method, *pairs = label.split(":")
    settings = (pair.partition("=") for pair in pairs)
    return ":".join([method, *(f"{METHOD_SETTINGS.get(name, name)}={value}" for name, _, value in settings)])


def upgrade_tuned_settings(text: str) -> str:
    """Return a TOML file of tuned settings with today's names, comments included."""
    names: Mapping[str, str] = {}
    lines = []
    for line in text.splitlines():
        if table := _TUNED_TABLE.fullmatch(line):
            names = OPTIM_FIELDS if table[1] == "plans" else METHOD_SETTINGS
            title = "optim_by_method" if table[1] == "plans" else table[1]
            lines.append(f'[{title}."{upgrade_label(table[2] or table[3])}"]')
        elif score := _TUNED_SCORE.fullmatch(line):
            changes = (change.split(" ") for change in score[2].split(", ")[1:])
            optim = "".join(f", {OPTIM_FIELDS.get(name, name)} {value}" for name, value in changes)
            lines.append(f"# {upgrade_label(score[1])}{optim}: mAP {score[3]}")
        elif not line.startswith("#") and " = " in line:
            name, _, value = line.partition(" = ")
            lines.append(f"{names.get(name, name)} = {value}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _rename(mapping: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in mapping.items()}


# --- Data: splits, transforms ---


def upgrade_split(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a split (`Split.as_dict`) with today's words: a fold was called a round."""
    note = re.sub(r"^((?:rehearsal: [^.]*\. )?)round (\d of 4)", r"\1fold \2", str(split.get("note", "")))
    return {**split, "note": note}
