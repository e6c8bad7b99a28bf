"""Refinements on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.images import save_image
from helpers.models import make_model
from proxyhash.cli.app import main


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    random = np.random.default_rng(0)
    for number in range(12):
        save_image(random.integers(0, 256, (16, 16, 3), dtype=np.uint8), tmp_path / "photos" / f"{number:02}.png")
    make_model(2, 0, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return [f"photos/{number:02}.png" for number in range(12)]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def first_keys(found: object) -> list[str]:
    assert isinstance(found, list)
    return [matches["matches"][0]["key"] for matches in found]


def test_an_index_is_created_with_a_refinement(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "index", "add", "photos", "--model", "model", "--index", "i", "--refine", "code")
    names = [Path(file).name for file in files]
    assert first_keys(run(capsys, "search", "i", *files)) == names
    assert first_keys(run(capsys, "search", "i", *(word for name in names for word in ("--key", name)))) == names
    assert first_keys(run(capsys, "search", "i", *files, "--no-refine")) != names
    assert first_keys(run(capsys, "search", "i", *files, "-k", "2", "--oversample", "6")) == names
    main(["index", "info", "i"])
    assert "code, of 12 items" in " ".join(capsys.readouterr().out.split())


def test_a_refinement_is_added_changed_and_removed(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "index", "add", "photos", "--model", "model", "--index", "i")
    for kind in ("code", "int8"):
        done = run(capsys, "index", "refine", "i", "--kind", kind)
        assert done == {"refinement": kind, "refined": 12, "unreadable": 0, "skipped": {}}
        assert first_keys(run(capsys, "search", "i", *files, "--refine")) == [Path(file).name for file in files]
    main(["index", "refine", "i", "--kind", "none"])
    assert "i: the refinement was removed." in capsys.readouterr().out
