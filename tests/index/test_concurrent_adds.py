"""Two processes that add the same folder at once: every item is stored once, and each process reports what it did."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.images import write_images
from proxyhash.data import SkippedItems
from proxyhash.index import folder_sync
from proxyhash.index.folder_sync import SyncPlan, add_folder
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import verify
from proxyhash.utils.errors import InputError

IMAGES = 200

# Small transactions, so that those of two processes alternate; each process waits at the end of its plan, or at its start.
ADD = """
import sys
from proxyhash.cli.app import main
from proxyhash.index import folder_sync

def wait(result=None):
    print("ready", flush=True)
    sys.stdin.readline()
    return result

where, *arguments = sys.argv[1:]
folder_sync.COMMIT_IMAGES = 32
if where == "planned":
    plan_sync = folder_sync.plan_sync
    folder_sync.plan_sync = lambda *arguments: wait(plan_sync(*arguments))
else:
    wait()
main(arguments)
"""


def add_at_once(where: str, *arguments: object) -> list[dict[str, Any]]:
    """Run `index add` in two processes that go on together, and return what they report."""
    command = [sys.executable, "-c", ADD, where, "index", "add", *map(str, arguments), "--json"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=120)[0] for process in started]
    return [json.loads(output) for output in outputs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many") / "photos"
    write_images(root, [f"{'ab'[number % 2]}/{number:03d}.png" for number in range(IMAGES)])
    return root


@pytest.fixture
def index(tmp_path: Path, model: Path) -> Iterator[LocalIndex]:
    with LocalIndex.open_folder(tmp_path / "i", model=model) as opened:
        yield opened


def counts(reports: list[dict[str, Any]], name: str) -> int:
    return sum(report[name] for report in reports)


def test_each_file_is_added_once_and_unchanged_for_the_other(index: LocalIndex, folder: Path) -> None:
    reports = add_at_once("planned", folder, "--index", index.folder)
    assert (counts(reports, "added"), counts(reports, "unchanged"), counts(reports, "replaced")) == (IMAGES, IMAGES, 0)
    assert all(report["added"] + report["unchanged"] == IMAGES for report in reports)
    assert all(report["skipped"] == {} and report["unreadable"] == 0 for report in reports)
    assert (len(index), verify(index).ok) == (IMAGES, True)


@pytest.mark.slow
def test_each_changed_file_is_replaced_once(index: LocalIndex, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_images(photos, [f"{number:03d}.png" for number in range(IMAGES)])
    add_folder(index, photos, SkippedItems())
    write_images(photos, [f"{number:03d}.png" for number in range(IMAGES)], first_seed=1000)
    reports = add_at_once("planned", photos, "--index", index.folder)
    assert (counts(reports, "added"), counts(reports, "unchanged"), counts(reports, "replaced")) == (0, IMAGES, IMAGES)
    assert (len(index), verify(index).ok) == (IMAGES, True)
    np.testing.assert_array_equal(index.code("007.png"), index.hasher.encode([photos / "007.png"]))


def test_both_may_prune(index: LocalIndex, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    write_images(photos, [f"{number}.png" for number in range(9)])
    add_folder(index, photos, SkippedItems())
    for number in range(4):
        (photos / f"{number}.png").unlink()
    reports = add_at_once("planned", photos, "--index", index.folder, "--prune")
    assert (counts(reports, "removed"), counts(reports, "unchanged"), len(index)) == (4, 10, 5)


def test_two_first_adds_at_once(folder: Path, tmp_path: Path, model: Path) -> None:
    reports = add_at_once("start", folder, "--index", tmp_path / "new", "--model", model)
    assert (counts(reports, "added"), counts(reports, "unchanged")) == (IMAGES, IMAGES)
    with LocalIndex.open_folder(tmp_path / "new") as opened:
        assert (len(opened), verify(opened).ok) == (IMAGES, True)


def test_a_key_of_another_folder_is_refused_even_if_it_came_after_the_plan(
    index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        write_images(tmp_path / name, ["a.png"])
    encode_batches = folder_sync._encode_batches

    def add_the_other(*arguments: Any) -> Any:
        monkeypatch.setattr(folder_sync, "_encode_batches", encode_batches)
        add_folder(index, tmp_path / "two", SkippedItems())
        return encode_batches(*arguments)

    monkeypatch.setattr(folder_sync, "_encode_batches", add_the_other)
    with pytest.raises(InputError, match=r"a\.png is in the index already, from elsewhere"):
        add_folder(index, tmp_path / "one", SkippedItems())
    assert index.item("a.png").path == tmp_path / "two" / "a.png"


def test_keys_that_another_process_adds_during_the_plan_are_not_foreign(
    index: LocalIndex, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_sync = folder_sync.plan_sync

    def fall_behind(*arguments: Any) -> SyncPlan:
        monkeypatch.setattr(folder_sync, "plan_sync", plan_sync)
        add_folder(index, photos, SkippedItems())
        return plan_sync(*arguments)

    monkeypatch.setattr(folder_sync, "plan_sync", fall_behind)
    done = add_folder(index, photos, SkippedItems())
    assert (done.added, done.replaced, done.unchanged, len(index)) == (0, 0, 12, 12)
