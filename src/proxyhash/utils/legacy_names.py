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

# --- Experiments: records, tuned settings ---

# --- Quickstart: state files ---

_QUICKSTART_STEPS = {"measuring": "evaluating"}
_QUICKSTART_OPTIONS = {"--batch": "--batch-size", "--keep": "--save"}


def upgrade_quickstart(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of quickstart.json of release 0.1 in the present form."""
    if content["format"] != "proxyhash.quickstart/1":
        return content
    steps = {
        _QUICKSTART_STEPS.get(title, title): {
            "command": [_QUICKSTART_OPTIONS.get(word, word) for word in step["command"]],
            "result": _quickstart_result(step["answer"]),
        }
        for title, step in content["steps"].items()
    }
    running = [_QUICKSTART_OPTIONS.get(word, word) for word in content["begun"]]
    return {"format": "proxyhash.quickstart/2", "data": content["data"], "running": running, "steps": steps}


def _quickstart_result(answer: Any) -> Any:
    """Return the mAP by method of a comparison, and every other result as it is."""
    if not isinstance(answer, list):
        return answer
    return {record["trial"]["method"]: record["metrics"]["map"] for record in answer}


# --- Data: splits, transforms ---
