"""Model cards: a README with training data, metrics, intended use and limits, made from the model's folder."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proxyhash.cutoff import map_name
from proxyhash.models.storage import CALIBRATION, CARD, METRICS, MODULE_PREFIX, read_config, takes_vectors
from proxyhash.utils import legacy_names
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.formats import read_json
from proxyhash.utils.markdown import escape_markdown

NAMES_SHOWN = 30
# Metadata for the Hugging Face Hub.
_FRONT = """---
library_name: proxyhash
pipeline_tag: image-feature-extraction
tags:
- image-retrieval
- hashing
---
"""
_VECTOR_FRONT = """---
library_name: proxyhash
pipeline_tag: feature-extraction
tags:
- hashing
---
"""


def model_card(folder: Path) -> str:
    """Return the card of the model in a folder, as Markdown."""
    config = read_config(folder)
    sections = (
        _what_it_is(config),
        _data(config),
        _measured(config, read_metrics(folder), _read(folder / CALIBRATION)),
        _intended_use(config),
        _limits(config),
        _how_to_use(config),
    )
    front = _VECTOR_FRONT if takes_vectors(config) else _FRONT
    return front + "\n" + "\n\n".join("\n".join(section) for section in sections) + "\n"


def write_card(folder: Path) -> None:
    """Write the card into the folder."""
    with atomic_write(folder / CARD) as temporary:
        temporary.write_text(model_card(folder), encoding="utf-8")


@contextmanager
def refresh_card(folder: Path) -> Iterator[None]:
    """Write the card again after new metrics, unless a person has edited it."""
    path = folder / CARD
    ours = not path.is_file() or path.read_text(encoding="utf-8") == model_card(folder)
    yield
    if ours:
        write_card(folder)


def read_metrics(folder: Path) -> dict[str, Any]:
    """Return the saved metrics of a model, or an empty dictionary."""
    return _read(folder / METRICS) or legacy_names.upgrade_metric_names(_read(folder / legacy_names.METRICS_FILE))


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON object, or an empty dictionary if the file is missing; a damaged one is reported by a warning."""
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
    except InputError as error:
        warnings.warn(f"The card leaves out what {path.name} holds: {error}", ProxyhashWarning, 2)
        return {}
    return content if isinstance(content, dict) else {}


def _train_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return dict(config["metadata"].get("config", {}))


def _what_it_is(config: Mapping[str, Any]) -> Iterator[str]:
    train, head = _train_config(config), config["head"]
    method = escape_markdown(train.get("method", "unknown method"))
    if takes_vectors(config):
        yield f"# Vector hasher: {method}, {head['bits']} bits"
        yield ""
        yield "Turns a vector into a short binary code: similar vectors get similar codes. Made by proxyhash."
        yield ""
        scaled = ", scaled to length 1" if config["normalize"] else ""
        yield f"- vectors: {head['in_features']} values{scaled}"
        yield from _head_lines(train, head)
        return
    yield f"# Image hasher: {method}, {head['bits']} bits"
    yield ""
    yield "Turns an image into a short binary code; images are alike if few bits of their codes differ. Made by proxyhash."
    yield ""
    finetune = train.get("finetune")
    trained = "" if finetune is None else ", trained too" if finetune else ", its features frozen"
    if type(finetune) is int:
        trained = f", its {finetune} upper stages trained too"
    start = "" if train.get("pretrained", True) else ", from random weights"
    yield f"- backbone: {escape_markdown(config['backbone'])}{start}{trained}"
    yield f"- images: brought to {config['transform']['size']} x {config['transform']['size']} pixels"
    yield from _head_lines(train, head)


def _head_lines(train: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    yield f"- head: {head['in_features']} features to {head['bits']} bits" + (
        f" by {head['hidden_dim']} hidden units" if head.get("hidden_dim") else ""
    )
    if train.get("settings"):
        yield f"- settings: {escape_markdown(json.dumps(train['settings'], sort_keys=True))}"


def _data(config: Mapping[str, Any]) -> Iterator[str]:
    yield "## Data"
    yield ""
    record, names = config["metadata"], config["class_names"]
    path = record.get("data", {}).get("path")
    # A whole path may hold private names.
    yield f"Learned from {escape_markdown(Path(path).name)}." if path else "What it learned from was not recorded."
    protocol = record.get("protocol")
    if protocol is None:
        yield ("No labels were used." if path and not config["class_names"] else "")
        return
    sizes = ", ".join(f"{count:,} {escape_markdown(name.replace('_', ' '))}" for name, count in protocol["sizes"].items())
    version = f"{escape_markdown(protocol['protocol'])}@{protocol['version']}"
    yield f"Protocol {version} ({sizes}), fingerprint {escape_markdown(protocol['fingerprint'])}."
    if names:
        shown = ", ".join(escape_markdown(name) for name in names[:NAMES_SHOWN])
        more = f", and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
        yield ""
        yield f"{len(names):,} classes or tags: {shown}{more}."


def _measured(config: Mapping[str, Any], measured: Mapping[str, Any], calibration: Mapping[str, Any]) -> Iterator[str]:
    yield "## What was measured"
    yield ""
    columns = {
        "validation": legacy_names.upgrade_metric_names(config["metadata"].get("validation") or {}),
        "held-out queries": measured,
    }
    protocols = {"validation": config["metadata"].get("protocol"), "held-out queries": measured.get("protocol")}
    known = {f"{name}{_cutoff_note(protocols[name] or {})}": values for name, values in columns.items() if "map" in values}
    if known:
        rows = {"map": "mAP", "accuracy": "accuracy by nearest proxy", "binarization_error": "binarization error"}
        yield "| | " + " | ".join(known) + " |"
        yield "|---|" + "---:|" * len(known)
        for row, title in rows.items():
            if any(values.get(row) is not None for values in known.values()):
                cells = ("" if values.get(row) is None else f"{values[row]:.4f}" for values in known.values())
                yield f"| {title} | " + " | ".join(cells) + " |"
    else:
        yield f"Nothing: no labeled {_items(config)} were held out, or nobody has measured on them."
    if precision := calibration.get("precision"):
        radius = sum(share >= 0.5 for share in precision) - 1
        yield ""
        reach = "at no distance" if radius < 0 else f"up to {radius} bits"
        yield f"On validation images, a match is more likely right than wrong {reach}."


def _cutoff_note(protocol: Mapping[str, Any]) -> str:
    """Return the name of mAP if it has a cutoff."""
    top = protocol.get("top")
    return "" if top is None else f", {escape_markdown(map_name(top, protocol.get('denominator', 'relevant')))}"


def _items(config: Mapping[str, Any]) -> str:
    return "vectors" if takes_vectors(config) else "images"


def _intended_use(config: Mapping[str, Any]) -> Iterator[str]:
    yield "## Intended use"
    yield ""
    if takes_vectors(config):
        yield "Finding similar vectors among vectors like those it was fitted on."
    elif config["metadata"].get("protocol") is None:
        yield "Finding pictures that look alike to a network that was pretrained on photographs. It knows no classes."
    else:
        yield "Finding images of the same class, or with a tag in common, among images like those it learned from."


def _limits(config: Mapping[str, Any]) -> Iterator[str]:
    pretrained = _train_config(config).get("pretrained", True) and config.get("backbone", "convnet") != "convnet"
    yield "## Limits"
    yield ""
    yield "- Codes can only be compared with codes of this very model."
    items = _items(config)
    yield f"- The numbers above hold for {items} like the measured ones; for others, and for unseen classes, measure."
    yield f"- Ties are frequent in short codes: many {items} have the same distance to a query."
    if pretrained:
        yield "- The backbone's pretraining data and their biases are part of it."
    yield "- It was not checked for decisions about people."


def _how_to_use(config: Mapping[str, Any]) -> Iterator[str]:
    yield "## How to use it"
    yield ""
    yield "```python"
    yield "from proxyhash import Hasher"
    yield ""
    kind, _, network = str(config.get("backbone")).partition("/")
    passed = f", backbone={network}(...)" if f"{kind}/" == MODULE_PREFIX and network.isidentifier() else ""
    yield f'hasher = Hasher.load("FOLDER"{passed})  # or "OWNER/NAME@COMMIT" of the Hugging Face Hub'
    inputs = "vectors" if takes_vectors(config) else '["photo.jpg"]'
    count = "N" if takes_vectors(config) else "1"
    yield f"hasher.encode({inputs})  # ({count}, {-(-config['head']['bits'] // 8)}) packed bits"
    yield "```"
