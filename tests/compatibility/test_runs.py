import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.release_0_1 import FILES, StepCounter, assert_floats, copy_of, read_arrays, read_json, same_processor
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import FORMS_0_1

RUNS = ("learned", "adsh", "bhc", "csq", "drsch", "dsdh", "hashnet", "mdsh", "softmax-pq")


def resumed(name: str, photos: Path, run: Path, settings: dict[str, Any] | None = None) -> tuple[list[Any], int]:
    """Go on with a run, by default with the settings of then, and return its hashers and how many steps were left."""
    from proxyhash.data import load_dataset, make_split
    from proxyhash.training import OptimConfig, TrainConfig, train_hashers

    if name == "finetuned":
        optim = OptimConfig.finetune(batch_size=20, epochs=3)
        own: dict[str, Any] = {"bits": (8, 16), "method": "shclm", "settings": {"triplet": 1}, "finetune": True}
    else:
        ema = 0.5 if name == "learned" else 0.0
        optim = OptimConfig.frozen(epochs=3, batch_size=20, hidden_dim=0, lr=0.05, dropout=0.1, ema_decay=ema)
        if settings is None:
            settings = {"tau": 4.0} if name == "learned" else dict(FORMS_0_1.get(name, {}))
        own = {"bits": (8,), "method": name, "settings": settings}
    config = TrainConfig(**own, backbone="convnet", image_size=16, optim=optim)
    dataset, steps = load_dataset(photos), StepCounter()
    return train_hashers(dataset, make_split(dataset), config, run, resume=True, progress=steps), steps.count


def assert_outcome(name: str, hasher: Any, photos: Path) -> None:
    """Compare a hasher with that of the run that nobody stopped."""
    expected = read_arrays("runs/expected.npz")
    outputs = hasher.embed(sorted(photos.glob("*/*.png")))
    codes = hasher.head.encode(outputs)
    assert_floats(outputs, expected[f"{name}/outputs"], 1e-2)
    if f"{name}/sure" in expected:
        sure = expected[f"{name}/sure"]
        np.testing.assert_array_equal(codes[sure], expected[f"{name}/codes"][sure])
    if same_processor():
        np.testing.assert_array_equal(codes, expected[f"{name}/codes"])
        if f"{name}/training_codes" in expected:
            np.testing.assert_array_equal(hasher.training_codes, expected[f"{name}/training_codes"])


@pytest.mark.parametrize("name", RUNS)
def test_stopped_run_ends_as_if_nobody_had_stopped_it(name: str, tmp_path: Path, photos: Path) -> None:
    (hasher,), steps = resumed(name, photos, copy_of(f"runs/{name}", tmp_path))
    assert steps == read_json("runs/expected.json")["steps_left"][name]
    assert_outcome(name, hasher, photos)


def test_run_of_a_method_with_another_default_names_the_setting(tmp_path: Path, photos: Path) -> None:
    run = copy_of("runs/bhc", tmp_path)
    with pytest.raises(
        InputError, match=r"started with settings.classifier_lr = 1.0, not None; resume needs the same settings"
    ):
        resumed("bhc", photos, run, {})


def test_stopped_run_of_two_lengths_ends_as_if_nobody_had_stopped_it(tmp_path: Path, photos: Path) -> None:
    hashers, steps = resumed("finetuned", photos, copy_of("runs/finetuned", tmp_path))
    assert steps == read_json("runs/expected.json")["steps_left"]["finetuned"]
    for hasher in hashers:
        assert_outcome(f"finetuned-{hasher.bits}", hasher, photos)


def test_finished_run_gives_its_best_epoch(tmp_path: Path, photos: Path) -> None:
    run = copy_of("runs/finished", tmp_path)
    (hasher,), steps = resumed("csq", photos, run)
    assert steps == 0
    assert_outcome("csq", hasher, photos)
    log = [json.loads(line) for line in (FILES / "runs/finished/log.jsonl").read_text().splitlines()]
    best = max(log, key=lambda line: float(line["map"]))
    assert (hasher.metadata["validation"]["epoch"], hasher.metadata["validation"]["map"]) == (best["epoch"], best["map"])
