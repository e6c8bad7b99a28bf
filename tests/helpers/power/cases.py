"""Workloads with what they need: files that exist before, arguments, and the check of what a loss of power leaves."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np

from helpers.images import write_images
from helpers.models import make_model, make_vector_model
from helpers.power.file_workloads import check_files
from helpers.power.index_workloads import check_arrays, check_backup, check_index, check_kept_vectors, contents, write_shards
from helpers.power.recording import Check, Counts, Recording, check_cuts, record, scratch_folder
from helpers.power.replay import Disk, write_tree
from helpers.power.vector_workloads import WIDTH, check_vectors, check_vectors_and_backup
from helpers.release_0_1 import index_folder
from proxyhash.index.local.index import LocalIndex

INDEX, FILES = "helpers.power.index_workloads", "helpers.power.file_workloads"
VECTORS = "helpers.power.vector_workloads"


@dataclass(frozen=True)
class Case:
    """A workload: its module and name, `prepare(root, outside)`, which returns more arguments, and the check."""

    module: str
    name: str
    check: Check = check_index
    prepare: Callable[[Path, Path], list[str]] = lambda _, __: []

    def record(self, folder: Path) -> Recording:
        """Run the workload in a folder of its own, and return what it did."""
        root, outside = folder / "root", folder / "outside"
        root.mkdir()
        outside.mkdir()
        arguments = self.prepare(root, outside)
        return record([self.module, self.name, str(root), *arguments], root)


def _prepare_shards(root: Path, _: Path) -> list[str]:
    write_shards(root / "shards")
    return []


def _prepare_migration(root: Path, outside: Path) -> list[str]:
    index_folder("scanned-index", outside).rename(root / "i")
    return [str(_write_expected(root, outside))]


def _prepare_format_2(root: Path, outside: Path) -> list[str]:
    shutil.copytree(Path(__file__).parents[2] / "fixtures" / "index-format-2", root / "i")
    (root / "i" / "expected.json").unlink()
    return [str(_write_expected(root, outside))]


def _prepare_format_3(root: Path, outside: Path) -> list[str]:
    shutil.copytree(Path(__file__).parents[2] / "fixtures" / "index-format-3" / "index", root / "i")
    return [str(_write_expected(root, outside))]


def _write_expected(root: Path, outside: Path) -> Path:
    """Write down what an index holds, as a copy of it says."""
    shutil.copytree(root / "i", outside / "copy")
    with LocalIndex.open_folder(outside / "copy") as index:
        (outside / "expected.json").write_text(json.dumps(contents(index)))
    return outside / "expected.json"


def _prepare_upgrade(_: Path, outside: Path) -> list[str]:
    write_images(outside / "photos", [f"{number}.png" for number in range(12)])
    with mock.patch("proxyhash.models.hasher.is_onnx_available", return_value=False):  # an export takes seconds
        models = [make_model(bits, bits, outside / f"model-{bits}") for bits in (32, 24)]
    return [*map(str, models), str(outside / "photos")]


def _prepare_vectors(_: Path, outside: Path) -> list[str]:
    model = make_vector_model(12, 32, 0, outside / "encoder")
    np.save(outside / "v.npy", np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32))
    return [str(model), str(outside / "v.npy")]


def _prepare_two_models(_: Path, outside: Path) -> list[str]:
    return [str(make_vector_model(WIDTH, bits, bits, outside / f"encoder-{bits}")) for bits in (16, 8)]


def has_backups() -> bool:
    """Return whether this version can back up an index."""
    return find_spec("proxyhash.index.backup") is not None


CASES = {
    "small": Case(INDEX, "small"),
    "large": Case(INDEX, "large"),
    "shards": Case(INDEX, "shards", prepare=_prepare_shards),
    "upgraded": Case(INDEX, "upgraded", partial(check_index, bits=32), _prepare_upgrade),
    "kept vectors": Case(INDEX, "kept_vectors", check_kept_vectors, _prepare_vectors),
    "arrays": Case(INDEX, "arrays", check_arrays),
    "columns": Case(VECTORS, "columns", check_vectors_and_backup, _prepare_two_models),
    "refinement": Case(VECTORS, "refined", check_vectors_and_backup, _prepare_two_models),
    "refinement added later": Case(VECTORS, "backfilled", check_vectors, _prepare_two_models),
    "migrated": Case(INDEX, "migrated", prepare=_prepare_migration),
    "migrated from format 2": Case(INDEX, "migrated", prepare=_prepare_format_2),
    "migrated from format 3": Case(INDEX, "migrated", prepare=_prepare_format_3),
    "failing": Case(INDEX, "failing"),
    **({"backed_up": Case(INDEX, "backed_up", check_backup)} if has_backups() else {}),
    "plain files": Case(FILES, "plain", check_files),
    "models and runs": Case(FILES, "trained", check_files),
}


def run_case(name: str, *, seed: int, max_cuts: int | None = None) -> Counts:
    """Record a workload and cut the power at its operations."""
    with scratch_folder() as folder:
        return check_cuts(CASES[name].record(folder), CASES[name].check, seed=seed, max_cuts=max_cuts)


def run_second_cut(seed: int, max_cuts: int | None = None) -> Counts:
    """Cut the power at a random operation on an index, and again while what is left is opened and written."""
    with scratch_folder() as folder:
        recording = CASES["small"].record(folder)
        marks = [number for number, _ in recording.marks()]
        cut = Random(seed).randrange(marks[1] + 1, marks[-1])  # items were acknowledged
        disk = Disk(recording.root, recording.initial, is_journaling=bool(seed % 2))
        for operation in recording.operations[: cut + 1]:
            disk.apply(operation)
        tree = disk.tree("some", Random(seed).choice(["random", "torn", "sectors", "kept"]), Random(seed))
    with scratch_folder() as folder:
        write_tree(tree, folder / "root")
        (folder / "outside").mkdir()
        expected = _write_expected(folder / "root", folder / "outside")
        recording = record([INDEX, "migrated", str(folder / "root"), str(expected)], folder / "root")
        return check_cuts(recording, check_index, seed=seed, max_cuts=max_cuts)
