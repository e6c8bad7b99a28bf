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


def upgrade_train_config(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `TrainConfig` from an `order` of release 0.1; a fitted method has no `optim`."""
    content = dict(order)
    plan = content.pop("plan", {})
    content |= {"finetune": plan.get("backbone_rate", 0) > 0, "seed": plan.get("seed", 0)}
    return content | ({"optim": upgrade_optim_config(plan)} if "epochs" in plan else {})


def upgrade_model_metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a model from the `record` in a config.json of release 0.1."""
    content = dict(record)
    if "order" in content:
        content["config"] = upgrade_train_config(content.pop("order"))
    if "lengths" in content:
        content["code_lengths"] = content.pop("lengths")
    if "round" in content.get("data", {}):
        data = dict(content["data"])
        content["data"] = data | {"fold": data.pop("round")}
        content["data"].pop("round", None)
    if "validation" in content:
        content["validation"] = upgrade_metric_names(content["validation"])
    return content


def upgrade_run_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run folder from a settings.json of release 0.1."""
    content = dict(settings)
    if "order" in content:
        content["config"] = upgrade_train_config(content.pop("order"))
    return content


def upgrade_checkpoint(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a checkpoint.pt or best.pt from one of release 0.1."""
    if "learner" not in content:
        return dict(content)
    upgraded: dict[str, Any] = {"model": content["learner"]}
    if "optimizer" in content:
        groups = [
            {CHECKPOINT_KEYS.get(name, name): value for name, value in group.items()}
            for group in content["optimizer"]["param_groups"]
        ]
        upgraded |= {"optimizer": content["optimizer"] | {"param_groups": groups}, "progress": content["state"], "ema": None}
    if content.get("average") is not None:
        import torch

        weights = {f"module.{name}": value for name, value in content["average"]["learner"].items()}
        upgraded["ema"] = weights | {"n_averaged": torch.tensor(content["average"]["steps"] + 1)}
    return upgraded


CHECKPOINT_KEYS = {"peak": "max_lr"}


def upgrade_metric_names(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics by the names of today, from a log.jsonl or the `validation` of a model of release 0.1."""
    return {name.replace("binarisation", "binarization"): value for name, value in metrics.items()}


# --- Methods: settings, saved encoders ---

# --- Evaluation: metric keys ---

# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---

# --- Experiments: records, tuned settings ---

# --- Data: splits, transforms ---
