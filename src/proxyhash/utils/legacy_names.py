"""Names that release 0.1 wrote to disk, and the names that they have now."""

import re
from collections.abc import Mapping, Sequence
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


def upgrade_train_config(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `TrainConfig` from an `order` of release 0.1; a fitted method has no `optim`."""
    content = dict(order)
    plan = content.pop("plan", {})
    content["settings"] = settings_of_run(order["method"], order.get("settings", {}))
    content |= {"finetune": plan.get("backbone_rate", 0) > 0, "seed": plan.get("seed", 0)}
    return content | ({"optim": upgrade_optim_config(plan)} if "epochs" in plan else {})


def upgrade_model_metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a model from the `record` in a config.json of release 0.1."""
    content = dict(record)
    if "order" in content:
        content["config"] = upgrade_train_config(content.pop("order"))
    if "protocol" in content:
        content["protocol"] = upgrade_split(content["protocol"])
    if "lengths" in content:
        content["code_lengths"] = content.pop("lengths")
    if "round" in content.get("data", {}):
        content["data"] = _renamed(content["data"], {"round": "fold"})
    if "validation" in content:
        content["validation"] = upgrade_metric_names(content["validation"])
    return content


def upgrade_run_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run folder from a settings.json of release 0.1."""
    content = dict(settings)
    if "order" in content:
        content["config"] = upgrade_train_config(content.pop("order"))
        content["protocol"] = upgrade_split(content["protocol"])
    if "protocol" in content:  # before there were others
        content["protocol"] = {"denominator": "relevant", **content["protocol"]}
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


# --- Methods: settings, saved encoders ---

METHOD_SETTINGS = {
    "per_class": "samples_per_class",
    "quantisation": "quantization",
    "floor": "distance_share",  # of joint
    "width": "embed_dim",  # of dqn
    "most_sets": "max_label_sets",  # of hbmp
    "rounds": "iterations",  # of sdh
    "ends": "saturation",  # of ssdh
}
METHOD_TENSORS = {"centres": "centers", "quantised": "quantized"}
_PROXY_METHODS = ("learned", "random", "tammes", "aligned", "hclm", "shclm", "code", "scode", "joint")
_ZERO_MEANT_DEFAULT = {**dict.fromkeys(_PROXY_METHODS, ("tau", "margin")), "triplet": ("margin",)}
_DEFAULT_DISTANCE_SHARE = 0.75  # of joint, where `floor` was 0


_CLASSIFIER_0_1 = {"classifier_lr": 1.0, "classifier_std": None, "tag_loss": "mean"}
# Settings that select the form that a method had in release 0.1, where its default has changed since.
FORMS_0_1: Mapping[str, Mapping[str, Any]] = {
    "adsh": {"start": "classes"},
    "bhc": _CLASSIFIER_0_1,
    "csq": {"pairs": 0.0, "quantization": 1e-4, "centers": "random"},
    "dpn": {"tag_loss": "vote"},
    "dpsh": {"tanh": True},
    "dqn": {"pairs": "balanced"},
    "drsch": {"affinity": "features"},
    "dsdh": {"codes": "epoch"},
    "greedyhash": {"bias": True},
    "hashnet": {"growth": 4.0, "samples_per_class": 8},
    "hbmp-regress": {"nonnegative": True},
    "mdsh": {"loss": "softmax", "pairs": 0.0, "quantization": 0.0, "batch_norm": False},
    "mihash": {"bins": "bits", "slope": 2.0},
    "orthohash": {"batch_norm": False},
    "sdh": {"kernel": "raw"},
    "ssdh": {**_CLASSIFIER_0_1, "saturation": 1.0, "balance": 1.0},
}


def settings_of_run(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run of release 0.1 with today's names, and with those of the form that it had.

    >>> settings_of_run("hashnet", {"per_class": 4})
    {'growth': 4.0, 'samples_per_class': 4}
    """
    return {**FORMS_0_1.get(method, {}), **upgrade_method_settings(method, settings)}


def upgrade_method_settings(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a method under today's names; a 0 that meant a default becomes None, or the default of then.

    >>> upgrade_method_settings("joint", {"floor": 0.5, "tau": 0.0, "per_class": 4})
    {'distance_share': 0.5, 'tau': None, 'samples_per_class': 4}
    """
    named = {METHOD_SETTINGS.get(name, name): value for name, value in settings.items()}
    zeros = _ZERO_MEANT_DEFAULT.get(method, ())
    upgraded = {name: None if name in zeros and value == 0 else value for name, value in named.items()}
    if upgraded.get("distance_share") == 0:
        upgraded["distance_share"] = _DEFAULT_DISTANCE_SHARE
    return upgraded


def upgrade_method_tensors(state: dict[str, Any], prefix: str) -> None:
    """Rename the tensors of a method in a checkpoint, in place."""
    for old, new in METHOD_TENSORS.items():
        if prefix + old in state:
            state[prefix + new] = state.pop(prefix + old)


# --- Evaluation: metric keys ---

METRICS_FILE = "measured.json"
"""Name of metrics.json in the folder of a model."""


def upgrade_map_name(name: str) -> str:
    """Return the name of a metric with today's spelling of mAP: the denominator stood behind the ties.

    >>> upgrade_map_name("mAP@5000 [ties worst, over relevant]"), upgrade_map_name("mAP [ties expected, over relevant]")
    ('mAP@5000[relevant] [ties worst]', 'mAP [ties expected]')
    """
    found = _MAP_NAME.fullmatch(name)
    return name if found is None else f"mAP{found[1] and f'{found[1]}[{found[3]}]'} [{found[2]}]"


_MAP_NAME = re.compile(r"mAP((?:@\d+)?) \[(.+), over (\w+)\]")


def upgrade_metric_names(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics with today's names, from a log, a record, or the metrics or the `validation` of a model."""
    return {name.replace("binarisation", "binarization"): value for name, value in metrics.items()}


# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---


# The SQLite file of an index, `user_version` 1: tables, and columns of the renamed tables.
INDEX_TABLES_1 = {"facts": "meta", "editions": "versions"}
INDEX_META_1 = {"live": "active_version", "generation": "generation", "next": "next_id"}  # rows of the table facts
INDEX_COLUMNS_1 = (
    ("versions", "centres", "centroids"),
    ("versions", "grouped_at", "clustered_at"),
    ("blocks", "version", "generation"),
    ("blocks", "edition", "version"),
    ("blocks", "low", "min_id"),
    ("blocks", "high", "max_id"),
    ("blocks", "groups", "clusters"),
    ("blocks", "positions", "item_ids"),
    ("items", "position", "item_id"),
    ("items", "modified", "mtime_ns"),
)

MILVUS_ITEM_ID = "position"  # field of a collection

# --- Experiments: records, tuned settings ---

RECORD_FORMAT = "proxyhash.record/1"
RECORD_FILE_PATTERN = r"-[0-9a-f]{12}\.json$"  # one file per record
RECORD_TRIAL = {"lengths": "code_lengths", "round": "fold", "plan": "optim"}
RECORD_PROTOCOL = {"judged_on": "eval_on"}
RECIPE = {"data": "dataset", "rounds": "folds", "judged_on": "eval_on", "plan": "optim", "plans": "optim_by_method"}

DEFAULT_IN_TOML = '"default"'  # TOML has no null
LEGACY_WORK_FOLDER = ".under-way"  # checkpoints of trials in progress, in the folder of the records
LEGACY_TUNED_FOLD_FILE = "chosen-round-{}.toml"
_TUNED_TABLE = re.compile(r'\[(settings|plans)\.(?:"(.+)"|([\w+-]+))\]')
_TUNED_SCORE = re.compile(r"# ([^,\n]+?)((?:, \w+ \S+)*): mAP (\S+)")


# Settings that methods have got since records were first written, with the values that were in force before.
_ADDED_TO_ASSIGNED = {
    "bias": False,
    "assignment": "anneal",
    "reassign_every": None,
    "reassign_until": 4,
    "reassign_from": "features",
}
ADDED_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    **{method: {"bias": False} for method in _PROXY_METHODS},
    **dict.fromkeys(("shclm", "scode"), _ADDED_TO_ASSIGNED),
}


def upgrade_record(content: Mapping[str, Any], current_format: str) -> dict[str, Any]:
    """Return a record of release 0.1 in today's format; one of today's gets the settings that were added since."""
    if content.get("format") != RECORD_FORMAT:
        return {**content, "trial": _with_added_settings(content["trial"])} if "trial" in content else dict(content)
    upgraded = {
        "format": current_format,
        "trial": upgrade_trial(content["trial"]),
        "protocol": _renamed(content["protocol"], RECORD_PROTOCOL),
        "metrics": upgrade_metric_names(content["metrics"]),
    }
    return {name: value for name, value in content.items() if name != "key"} | upgraded


def upgrade_trial(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trial of a record in today's names."""
    trial = _renamed(content, RECORD_TRIAL)
    trial["settings"] = settings_of_run(trial["method"], trial["settings"])
    trial["label"] = upgrade_label(trial["label"])
    trial["optim"] = None if trial["optim"] is None else upgrade_optim_config(trial["optim"])
    return _with_added_settings(trial)


def _with_added_settings(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {**trial, "settings": {**ADDED_SETTINGS.get(trial["method"], {}), **trial["settings"]}}


def upgrade_recipe(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe in today's names; one of release 0.1 has the key `data`."""
    if "data" not in content:
        return dict(content)
    recipe = _renamed(content, RECIPE)
    recipe["methods"] = list(map(upgrade_label, recipe["methods"]))
    recipe["optim"] = upgrade_optim_config(recipe.get("optim", {}))
    tables = recipe.get("settings", {}), recipe.get("optim_by_method", {})
    recipe["settings"] = {
        upgrade_label(row): upgrade_method_settings(row.partition(":")[0], own) for row, own in tables[0].items()
    }
    for method in {row.partition(":")[0] for row in recipe["methods"]} & FORMS_0_1.keys():
        recipe["settings"][method] = {**FORMS_0_1[method], **recipe["settings"].get(method, {})}
    recipe["optim_by_method"] = {upgrade_label(row): upgrade_optim_config(own) for row, own in tables[1].items()}
    return recipe


def upgrade_label(label: str) -> str:
    """Return a method with settings as it is typed, with today's names of the settings.

    >>> upgrade_label("joint:floor=0.5:per_class=4")
    'joint:distance_share=0.5:samples_per_class=4'
    """
    method, *pairs = label.split(":")
    settings = (pair.partition("=") for pair in pairs)
    return ":".join([method, *(f"{METHOD_SETTINGS.get(name, name)}={value}" for name, _, value in settings)])


def upgrade_tuned_settings(text: str) -> str:
    """Return a TOML file of tuned settings with today's names, comments included."""
    names: Mapping[str, str] = {}
    zeros: tuple[str, ...] = ()
    lines = []
    for line in text.splitlines():
        if table := _TUNED_TABLE.fullmatch(line):
            names = OPTIM_FIELDS if table[1] == "plans" else METHOD_SETTINGS
            zeros = () if table[1] == "plans" else _ZERO_MEANT_DEFAULT.get((table[2] or table[3]).partition(":")[0], ())
            title = "optim_by_method" if table[1] == "plans" else table[1]
            lines.append(f'[{title}."{upgrade_label(table[2] or table[3])}"]')
        elif score := _TUNED_SCORE.fullmatch(line):
            changes = (change.split(" ") for change in score[2].split(", ")[1:])
            optim = "".join(f", {OPTIM_FIELDS.get(name, name)} {value}" for name, value in changes)
            lines.append(f"# {upgrade_label(score[1])}{optim}: mAP {score[3]}")
        elif not line.startswith("#") and " = " in line:
            name, _, value = line.partition(" = ")
            name = names.get(name, name)
            lines.append(f"{name} = {DEFAULT_IN_TOML if name in zeros and value == '0.0' else value}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


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


def quickstart_command_0_1(command: Sequence[str]) -> list[str]:
    """Return the command of a step as release 0.1 wrote it: indexes had no refinement, and --finetune trained everything.

    >>> quickstart_command_0_1(["index", "add", "photos", "--refine", "code", "--prune"])
    ['index', 'add', 'photos', '--prune']
    >>> quickstart_command_0_1(["train", "photos", "--finetune", "all", "--epochs", "3"])
    ['train', 'photos', '--finetune', '--epochs', '3']
    """
    words = list(command)
    if "--refine" in words:
        first = words.index("--refine")
        del words[first : first + 2]
    if "--finetune" in words:
        del words[words.index("--finetune") + 1]
    return words


# --- Data: splits, transforms ---


def upgrade_split(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a split (`Split.as_dict`) with today's words: a fold was called a round."""
    note = str(split.get("note", "")).replace("rehearsal: judged on", "evaluated on")
    note = re.sub(r"\bround (\d of 4)", r"fold \1", note)
    return {**split, "note": note}
