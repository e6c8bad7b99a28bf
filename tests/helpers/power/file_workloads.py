"""Workloads over files other than the index, and what must be left of them after a loss of power.

python -m helpers.power.file_workloads NAME ROOT

Each step changes one kind of file and is acknowledged with the kind and the value that reading it gives. After a cut, a
kind has the value that was acknowledged last, or that of the step that the cut interrupted. The start of a run has a value
between: the old run is gone, and the new one does not exist yet.
"""

import hashlib
import json
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from helpers.power.recording import Mark, acknowledge
from proxyhash.utils.atomic_io import atomic_folder, atomic_write, sync_folder
from proxyhash.utils.json_lines import append_json_line, split_json_lines

Read = Callable[[Path], Any]


def text_of(number: int, size: int = 3000) -> str:
    """Return a text that spans several sectors."""
    return f"{number} " * size


# ---- texts and folders


def texts(root: Path) -> Iterator[Mark]:
    """Write a file below new folders, and replace it."""
    for number in range(3):
        with atomic_write(root / "a" / "b" / "text") as temporary:
            temporary.write_text(text_of(number))
        yield {"texts": digest(text_of(number))}


def read_text(root: Path) -> Any:
    path = root / "a" / "b" / "text"
    return digest(path.read_text()) if path.exists() else None


def folders(root: Path) -> Iterator[Mark]:
    """Write a folder with folders in it, and replace it."""
    for number in range(3):
        with atomic_folder(root / "deep" / "folder") as temporary:
            for name in ("one", "two/three", "two/four/five"):
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_text(text_of(number, 500))
        yield {"folders": dict.fromkeys(("one", "two/four/five", "two/three"), digest(text_of(number, 500)))}


def read_folder(root: Path) -> Any:
    folder = root / "deep" / "folder"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): digest(path.read_text()) for path in files} if folder.exists() else None


# ---- lines of JSON and records


def lines(root: Path) -> Iterator[Mark]:
    """Append lines, short and longer than a sector, to a file in a new folder."""
    for number in range(6):
        append_json_line(root / "log" / "lines.jsonl", {"number": number, "text": "x" * (300 * number)})
        yield {"lines": list(range(number + 1))}


def read_lines(root: Path) -> Any:
    """Return the numbers of all whole lines; a line that a cut tore is left out."""
    path = root / "log" / "lines.jsonl"
    if not path.exists():
        return None
    found = [_parsed(line) for line in split_json_lines(path.read_bytes())]
    append_json_line(path, {"number": -1})  # the file stays usable
    assert _parsed(split_json_lines(path.read_bytes())[-1]) == -1, "a line after the cut cannot be read"
    return [number for number in found if number is not None] or None


def _parsed(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["number"])
    except ValueError:
        return None


def records(root: Path) -> Iterator[Mark]:
    """Append the records of a grid."""
    from helpers.records import make_record
    from proxyhash.experiments.records import RecordStore

    names = []
    for number in range(4):
        record = make_record("itq", 16, 0.5, number)
        RecordStore(root / "grid").append(record)
        names.append(record.name)
        yield {"records": list(names)}


def read_records(root: Path) -> Any:
    from proxyhash.experiments.records import RecordStore
    from proxyhash.utils.errors import ProxyhashWarning

    if not (root / "grid" / "records.jsonl").exists():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ProxyhashWarning)  # a line that a cut tore is left out with a warning
        return [record.name for record in RecordStore(root / "grid").read()] or None


# ---- proxies and shards


def proxies(root: Path) -> Iterator[Mark]:
    """Save sets of proxies."""
    from proxyhash.proxies import design_proxies

    for seed in range(2):
        design_proxies(6, 32, "random", seed=seed).save(root / "proxies.safetensors")
        yield {"proxies": seed}


def read_proxies(root: Path) -> Any:
    from proxyhash.proxies import ProxySet

    path = root / "proxies.safetensors"
    return ProxySet.load(path).seed if path.exists() else None


def shards(root: Path) -> Iterator[Mark]:
    """Write shards, and one of them again."""
    from proxyhash.models.code_shards import CodeShard, write_shard

    for number, images in ((0, "first"), (1, "first"), (0, "second")):
        codes = np.full((40, 8), number, np.uint8)
        keys = [f"{images}/{row}" for row in range(40)]
        write_shard(root / "shards", CodeShard(codes, keys, [("a",)] * 40, 64, "model", images, number, 2))
        yield {f"shard {number}": images}


def read_shard_of(number: int) -> Read:
    def read(root: Path) -> Any:
        from proxyhash.models.code_shards import read_shard, shard_path

        path = shard_path(root / "shards", number, 2)
        return read_shard(path).images if path.exists() else None

    return read


# ---- models and runs


def models(root: Path) -> Iterator[Mark]:
    """Save a model, and another one over it."""
    from helpers.models import make_model
    from proxyhash.models.storage import fingerprint

    for seed in range(2):
        make_model(16, seed, root / "model")
        yield {"models": fingerprint(root / "model")}


def read_model(root: Path) -> Any:
    if not (root / "model").exists():
        return None
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.storage import fingerprint

    Hasher.load(root / "model")
    return fingerprint(root / "model")


def runs(root: Path) -> Iterator[Mark]:
    """Write the files of a training run, as the trainer does, and those of another run over them."""
    import torch

    from proxyhash.training.checkpoint import CheckpointManager, TrainProgress

    for run in range(2):
        state = run_state(run)
        manager = CheckpointManager(root / "runs" / "run")
        manager.start({"run": run}, resume=False)
        yield {"runs": [run, 0, []], "best": None, "interrupted": {"runs": None}}
        for epoch in range(1, 4):
            state.progress = TrainProgress(epoch)
            manager.log_epoch({"epoch": epoch, "map": 0.1 * epoch, "note": "x" * 700})
            with torch.no_grad():
                state.model.weight.fill_(epoch)
            manager.save_best(state.model)
            yield {"best": epoch}
            manager.save(state)
            yield {"runs": [run, epoch, list(range(1, epoch + 1))]}


def run_state(seed: int) -> Any:
    """Return a state with a network of one layer."""
    import torch

    from proxyhash.training.checkpoint import TrainerState

    torch.manual_seed(seed)
    model = torch.nn.Linear(30, 20)
    return TrainerState(model, torch.optim.SGD(model.parameters(), momentum=0.9, lr=0.1))  # type: ignore[arg-type]


def read_run(root: Path) -> Any:
    """Resume the run: return its number, epoch, and logged epochs."""
    folder = root / "runs" / "run"
    if not (folder / "settings.json").exists():
        return None
    from proxyhash.training.checkpoint import CheckpointManager

    run = json.loads((folder / "settings.json").read_text())["run"]
    state, manager = run_state(run), CheckpointManager(folder)
    manager.start({"run": run}, resume=True)
    manager.restore(state)
    if state.progress.epoch:
        assert (state.model.weight == state.progress.epoch).all()
    manager.best_epoch_metrics(16)
    path = folder / "log.jsonl"
    logged = [json.loads(line)["epoch"] for line in path.read_text().splitlines()] if path.exists() else []
    manager.log_epoch({"epoch": 99, "map": 0.0})
    manager.best_epoch_metrics(16)
    return [run, state.progress.epoch, [epoch for epoch in logged if epoch <= state.progress.epoch]]


def read_best(root: Path) -> Any:
    folder = root / "runs" / "run"
    if not ((folder / "settings.json").exists() and (folder / "best.pt").exists()):  # without settings, there is no run
        return None
    from proxyhash.training.checkpoint import CheckpointManager

    state = run_state(0)
    CheckpointManager(folder).load_best(state.model)
    return int(state.model.weight[0, 0].item())


# ---- writers that lose data, to check the simulation itself


def overwritten(root: Path) -> None:
    """Write a file in place."""
    for number in range(2):
        (root / "text").write_text(text_of(number))
        acknowledge(text=digest(text_of(number)))


def renamed_unsynced(root: Path) -> None:
    """Replace a file by a rename, without an fsync of its data."""
    for number in range(2):
        (root / "new").write_text(text_of(number))
        (root / "new").rename(root / "text")
        sync_folder(root)
        acknowledge(text=digest(text_of(number)))


def unsynced_name(root: Path) -> None:
    """Replace a file by a rename, without an fsync of its folder."""
    for number in range(2):
        with (root / "new").open("w") as handle:
            handle.write(text_of(number))
            handle.flush()
            os.fsync(handle.fileno())
        (root / "new").rename(root / "text")
        acknowledge(text=digest(text_of(number)))


def mapped(root: Path) -> None:
    """Write through a mapping, which the recorder cannot follow."""
    with (root / "text").open("wb+") as handle:
        handle.write(bytes(4096))
        handle.flush()
        with mmap.mmap(handle.fileno(), 4096) as content:
            content[:4] = b"text"


def check_text(root: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that the text is complete: as it was acknowledged last, or as the next step writes it."""
    path = root / "text"
    found = digest(path.read_text()) if path.exists() else None
    assert found in [before[-1]["text"] if before else None, following and following["text"]]


CARELESS = {each.__name__: each for each in (overwritten, renamed_unsynced, unsynced_name, mapped)}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


PLAIN = (texts, folders, lines, records, proxies, shards)
TRAINED = (models, runs)
READERS: dict[str, Read] = {
    "texts": read_text,
    "folders": read_folder,
    "lines": read_lines,
    "records": read_records,
    "proxies": read_proxies,
    "shard 0": read_shard_of(0),
    "shard 1": read_shard_of(1),
    "models": read_model,
    "best": read_best,
    "runs": read_run,
}


def run_workload(kinds: Sequence[Callable[[Path], Iterator[Mark]]], root: Path) -> None:
    """Make the steps of each kind in turn."""
    waiting = [kind(root) for kind in kinds]
    while waiting:
        for each in list(waiting):
            mark = next(each, None)
            if mark is None:
                waiting.remove(each)
            else:
                acknowledge(**mark)


def check_files(root: Path, before: Sequence[Mark], following: Mark | None) -> None:
    """Check that every kind of file has its acknowledged value, or that of the interrupted step."""
    acknowledged: dict[str, Any] = {}
    for mark in before:
        acknowledged |= mark
    for kind, read in READERS.items():
        possible = [acknowledged.get(kind)]
        if following is not None and kind in following:
            possible += [following[kind], *following.get("interrupted", {}).values()]
        found = read(root)
        assert found in possible, f"{kind}: read {str(found)[:150]}, possible {str(possible)[:300]}"


def main(name: str, root: Path) -> None:
    """Run a workload."""
    if name in CARELESS:
        CARELESS[name](root)
        return
    if name == "trained":
        with patch("proxyhash.models.hasher.is_onnx_available", return_value=False):  # an export takes seconds
            run_workload(TRAINED, root)
    else:
        run_workload(PLAIN, root)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
