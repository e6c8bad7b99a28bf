"""The card of a model: its facts, nothing that data could smuggle in, and nothing that a person wrote is lost."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxyhash.index.calibration import Calibration
from proxyhash.models.card import model_card, refresh_card
from proxyhash.models.hasher import Hasher
from proxyhash.utils.markdown import escape_markdown

EVIL = "<script>alert(1)</script>\n# [big](javascript:x) `code` | **b** & ![i](u)"
PROTOCOL = {
    "protocol": "holdout",
    "version": 1,
    "sizes": {"train": 1234, "validation_database": 5},
    "fingerprint": "0123456789abcdef",
}


def described(model: Path, folder: Path, **record: Any) -> Path:
    """Save a copy of a model with another history."""
    hasher = Hasher.load(model)
    hasher.onnx, hasher.metadata = None, record
    hasher.class_names = ("cats", EVIL)
    hasher.save(folder)
    return folder


@pytest.fixture(autouse=True)
def _torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.models.hasher.is_onnx_available", lambda: False)


def test_a_card_says_what_the_folder_knows(model: Path, tmp_path: Path) -> None:
    train = {"method": "shclm", "settings": {"triplet": 1.0}, "pretrained": True, "finetune": False}
    folder = described(
        model,
        tmp_path / "model",
        config=train,
        data={"path": "/home/someone/private/holidays", "tags": None, "fold": 0},
        protocol=PROTOCOL,
        validation={"epoch": 3, "map": 0.91234, "accuracy": 0.8},
    )
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: proxyhash\n")
    assert "# Image hasher: shclm, 32 bits" in card
    assert "Learned from holidays." in card
    assert "someone" not in card
    assert "holdout@1 (1,234 train, 5 validation database), fingerprint 0123456789abcdef" in card
    assert "| mAP | 0.9123 |" in card
    assert "its features frozen" in card
    for heading in ("Data", "What was measured", "Intended use", "Limits", "How to use it"):
        assert f"\n## {heading}\n" in card
    assert "(1, 4) packed bits" in card


def test_no_text_of_the_data_is_markup(model: Path, tmp_path: Path) -> None:
    protocol = {**PROTOCOL, "protocol": EVIL, "fingerprint": EVIL}
    train = {"method": EVIL, "settings": {"a": EVIL}}
    folder = described(model, tmp_path / "m", config=train, protocol=protocol, data={"path": f"/x/{EVIL.replace('/', '-')}"})
    card = (folder / "README.md").read_text()
    assert not re.search(r"(?<!\\)<script", card)
    for mark in ("](javascript", "\n# [", " `code`", "| **b**", "![i]", " & "):
        assert mark not in card
    assert card.count("\n# ") == 1
    assert escape_markdown("a\nb\x00<c>") == "a b\N{REPLACEMENT CHARACTER}\\<c\\>"


def test_a_model_without_history_has_a_card_too(model: Path) -> None:
    card = (model / "README.md").read_text()
    assert "What it learned from was not recorded." in card
    assert "Nothing: no labeled images were held out" in card


def test_what_is_measured_later_is_added_unless_a_person_edited_the_card(model: Path, tmp_path: Path) -> None:
    folder = described(model, tmp_path / "model")
    curve = Calibration(np.linspace(1, 0, 33), np.ones(33, np.int64))
    with refresh_card(folder):
        curve.save(folder)
    assert "right than wrong up to 16 bits" in (folder / "README.md").read_text()
    with (folder / "README.md").open("a") as card:
        card.write("License: ours.\n")
    with refresh_card(folder):
        (folder / "measured.json").write_text(json.dumps({"map": 0.5}))
    assert (folder / "README.md").read_text().endswith("License: ours.\n")
    assert "| mAP | 0.5000 |" in model_card(folder)
    assert Hasher.load(folder).bits == 32
