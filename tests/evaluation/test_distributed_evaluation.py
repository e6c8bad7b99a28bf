"""Evaluation by two processes against one process: equal to the last bit."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.distributed_evaluation import SEARCHES, evaluate_model, search_of
from proxyhash.cli.app import main
from proxyhash.evaluation import evaluate
from proxyhash.utils.distributed import DistributedContext

MODULE = "helpers.distributed_evaluation"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """Evaluate everything with two processes."""
    folder = tmp_path_factory.mktemp("distributed")
    shutil.copytree(model, folder / "model")
    draw_photos(folder / "photos")
    q, q_labels, db, db_labels = search_of("classes")
    np.savez(folder / "q.npz", codes=q, labels=q_labels)
    np.savez(folder / "db.npz", codes=db, labels=db_labels)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, "-m", MODULE, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def draw_photos(folder: Path) -> None:
    """Write three batches of pictures of two classes, one of which is damaged."""
    random = np.random.default_rng(5)
    for number in range(150):
        path = folder / ("cats" if number % 2 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    (folder / "cats" / "77.png").write_bytes(b"damaged")


@pytest.mark.parametrize("name", SEARCHES)
def test_two_processes_give_the_metrics_of_one(name: str, folder: Path) -> None:
    one = evaluate(*search_of(name), top=100)
    for rank in (0, 1):
        both: list[Any] = pickle.loads((folder / f"{rank}.pickle").read_bytes())[name]
        assert [metric.name for metric in one] == [row[0] for row in both]
        for metric, (_, per_query, no_relevant, value) in zip(one, both, strict=True):
            assert metric.per_query.tobytes() == per_query.tobytes()
            assert metric.value == value
            assert metric.without_relevant == no_relevant
    if name == "nothing relevant":
        assert one[0].without_relevant > 0


def test_two_processes_give_the_report_of_one(folder: Path) -> None:
    one = json.loads(json.dumps(evaluate_model(folder, DistributedContext()).as_dict()))
    for rank in (0, 1):
        assert json.loads((folder / f"{rank}.json").read_text()) == one
    assert 0 < one["map"] < 1


def test_only_the_main_process_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", "codes", "--query", str(folder / "q.npz"), "--database", str(folder / "db.npz"), "--json"])
    assert (folder / "0.txt").read_text() == capsys.readouterr().out
    assert (folder / "1.txt").read_text() == ""
