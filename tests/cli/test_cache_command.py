"""`proxyhash cache`: its table, its sentences and its JSON."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.cached_rows import ACTIVATIONS, FEATURES, KEY, fill, interrupt, rows_of
from proxyhash.cli.app import main
from proxyhash.models.cache_kinds import lock_path

KINDS = "features, activations, compiled, weights, data, models"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache of this test, with features, interrupted activations, compiled code and weights."""
    root = tmp_path / "cache"
    monkeypatch.setenv("PROXYHASH_CACHE", str(root))
    monkeypatch.setenv("COLUMNS", "200")
    fill(rows_of(root))
    interrupt(rows_of(root, "activations", ACTIVATIONS))
    for name in ("codes", "index"):
        (root / "compiled" / f"{name}_{'0f' * 20}").mkdir(parents=True)
        (root / "compiled" / f"{name}_{'0f' * 20}" / "kernel.nbi").write_bytes(bytes(1500))
    (root / "weights").mkdir()
    (root / "weights" / "alexnet-owt-7be5be79.pth").write_bytes(bytes(2_500_000))
    return root


def run(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    main(["cache", *command.split()])
    output = capsys.readouterr()
    assert output.err == ""
    return output.out.splitlines()


def answer(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    return json.loads("\n".join(run(capsys, f"{command} --json")))  # type: ignore[no-any-return]


def test_table_has_a_row_for_each_entry_and_a_total(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heading, features, activations, weights, compiled, empty, total = run(capsys, "")
    assert heading.split() == "kind entry contents size last used".split()
    assert " ".join(features.split()).startswith(f"features {KEY} digits, convnet at 8 pixels; 100 x 4 ")
    assert features.rstrip().endswith(time.strftime("%Y-%m-%d"))
    assert activations.startswith(f"activations  {KEY[::-1]}")
    assert "convnet at 8 pixels, below 1 upper stage; 100 x 2 x 2 x 1; interrupted" in activations
    assert "2.5 MB" in weights
    assert compiled.split()[:5] == ["compiled", "2", "folders", "3.0", "kB"]
    assert empty == ""
    assert total.startswith("5 entries, 2.5 MB, in ")
    assert total.endswith(f"in {root}.")
    assert run(capsys, "list")[1:] == [features, activations, weights, compiled, "", total]


def test_list_answers_in_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "")
    assert found == answer(capsys, "list")
    assert found["folder"] == str(root)
    assert found["bytes"] == sum(entry["bytes"] for entry in found["entries"]) > 2_500_000
    assert len(found["entries"]) == 5
    activations = next(entry for entry in found["entries"] if entry["kind"] == "activations")
    assert activations.pop("bytes") > 0
    assert activations.pop("last_used").startswith(time.strftime("%Y-", time.gmtime()))
    assert 0 <= activations.pop("rows_done") < 100
    assert activations == {
        "kind": "activations",
        "entry": ACTIVATIONS,
        "path": str(root / "activations" / ACTIVATIONS),
        "state": "interrupted",
        "dataset": "digits",
        "network": "convnet",
        "image_size": 8,
        "upper": 1,
        "shape": [100, 2, 2, 1],
    }


def test_empty_and_missing_caches_are_listed_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert run(capsys, "") == [f"0 entries, 0 bytes, in {tmp_path / 'cache'}."]
        assert answer(capsys, "") == {"folder": str(tmp_path / "cache"), "bytes": 0, "entries": []}
        assert run(capsys, "clear") == run(capsys, "clear weights --dry-run") == ["Nothing is deleted."]
        assert answer(capsys, "clear") == {"dry_run": False, "bytes": 0, "deleted": [], "skipped": []}
        (tmp_path / "cache").mkdir(exist_ok=True)
    assert list((tmp_path / "cache").iterdir()) == []


def test_clear_says_what_is_freed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = sum(path.stat().st_size for path in (root / "features" / FEATURES).iterdir())
    expected = [
        f"Deleted features/{FEATURES}, {size / 1000:.1f} kB.",
        "Deleted weights/alexnet-owt-7be5be79.pth, 2.5 MB.",
        "2 entries; 2.5 MB are freed.",
    ]
    dry = run(capsys, "clear features weights --dry-run")
    assert dry[:2] == [line.replace("Deleted", "Would delete") for line in expected[:2]]
    assert dry[2:] == ["2 entries; 2.5 MB would be freed."]
    assert run(capsys, "clear features weights") == expected
    assert run(capsys, "clear features weights") == ["Nothing is deleted."]
    lines = run(capsys, "clear")
    assert lines[1] == "Deleted compiled/2 folders, 3.0 kB."
    assert lines[2].startswith("3 entries; ")
    assert {path.name for path in root.rglob("*")} == {"features", "activations", "compiled", "weights"}


def test_clear_takes_entries_as_they_are_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, f"clear {KEY}")[-1].startswith("1 entry; ")
    assert not (root / "features" / FEATURES).exists()
    assert [entry["entry"] for entry in answer(capsys, f"clear activations/{ACTIVATIONS}")["deleted"]] == [ACTIVATIONS]


def test_clear_by_age(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(capsys, "clear --older-than 1") == ["Nothing is deleted."]
    ten_days_later = time.time() + 10 * 86_400
    monkeypatch.setattr(time, "time", lambda: ten_days_later)
    assert run(capsys, "clear --older-than 11") == ["Nothing is deleted."]
    os.utime(root / "features" / FEATURES / "features.npy", (ten_days_later, ten_days_later))
    deleted = answer(capsys, "clear --older-than 9")["deleted"]
    assert [entry["kind"] for entry in deleted] == ["activations", "compiled", "compiled"]


def test_entry_that_another_process_fills_is_skipped_and_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = "import sys; from pathlib import Path; from proxyhash.utils.locks import try_lock\n"
    holder += (
        f"with try_lock(Path({str(lock_path(root / 'features' / FEATURES))!r})) as held: print(held, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert "being filled" in run(capsys, "")[1]
        skipped = f"Skipped features/{FEATURES}: another process fills it."
        assert run(capsys, "clear features") == [skipped, "Nothing is deleted."]
        (entry,) = answer(capsys, "clear features")["skipped"]
        assert (entry["entry"], entry["reason"]) == (FEATURES, "another process fills it")
        process.communicate("\n")
    assert run(capsys, "clear features")[-1].startswith("1 entry; ")


def test_links_are_skipped_and_named(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "features").rename(tmp_path / "elsewhere")
    (root / "features").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in run(capsys, "")[1]
    assert run(capsys, "clear features") == ["Skipped features/features: it is a symbolic link.", "Nothing is deleted."]
    assert (tmp_path / "elsewhere" / FEATURES / "features.npy").is_file()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("clear kernels", f"There is no kind or entry 'kernels' in the cache; the kinds are {KINDS}."),
        ("clear features ../..", f"There is no kind or entry '../..' in the cache; the kinds are {KINDS}."),
        ("clear --older-than 0", "--older-than must be at least 1, not 0."),
        ("clear --older-than 1.5", "it must be a whole number, not 1.5."),
        ("clear --all", "Unknown option"),
        ("everything", "everything"),
    ],
)
def test_mistakes_are_one_sentence_and_delete_nothing(
    root: Path, command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(root.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main(["cache", *command.split()])
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.err.count("\n") == 1
    assert sentence in output.err
    assert set(root.rglob("*")) == before


def test_names_are_escaped(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "weights" / "\x1b[2Jmine").touch()
    assert any(r"\x1b[2Jmine" in line for line in run(capsys, ""))
    assert r"Skipped weights/\x1b[2Jmine: proxyhash did not write it." in run(capsys, "clear weights")


def test_torch_is_not_imported_and_nothing_is_created(tmp_path: Path) -> None:
    code = (
        "import sys; from proxyhash.cli.app import main; main(['cache', 'clear']); main(['cache']);"
        "print([name for name in ('torch', 'numba', 'onnxruntime') if name in sys.modules])"
    )
    environment = {**os.environ, "PROXYHASH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[]"
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cache", "clear", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert KINDS in shown
