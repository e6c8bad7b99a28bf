import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.release_0_1 import index_folder
from proxyhash.cli.app import main
from proxyhash.codes import pack


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_a_folder_goes_in_and_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path, model: Path, other_model: Path
) -> None:
    place = tmp_path / "photos.index"
    out = run(capsys, "index", "add", photos, "--model", model, "--index", place)
    assert out == f"12 added, 0 replaced, 0 unchanged, 0 removed. {place} holds 12 items.\n"
    (photos / "cats" / "0.png").unlink()
    (photos / "cats" / "bad.png").write_bytes(b"no picture")
    out = run(capsys, "index", "add", photos, "--index", place, "--prune")
    assert "Left out: unreadable image: 1 (" in out
    assert "0 added, 0 replaced, 11 unchanged, 1 removed." in out
    done = json.loads(run(capsys, "index", "add", photos, "--index", place, "--json"))
    assert (done["unchanged"], done["unreadable"], done["items"]) == (11, 1, 11)

    query = photos / "dogs" / "9.png"
    out = run(capsys, "search", place, query, "-k", 2, "--rerank", 5, "--show", tmp_path / "found.png")
    assert "   0       0.00  dogs/9.png" in out
    with Image.open(tmp_path / "found.png") as sheet:
        assert sheet.size == (3 * 136 + 8, 166 + 8)
    found = json.loads(run(capsys, "search", place, query, photos / "dogs" / "8.png", "--key", "cats/1.png", "--json"))
    assert [matches["matches"][0]["key"] for matches in found] == ["dogs/9.png", "dogs/8.png", "cats/1.png"]
    assert found[2]["query"] == "cats/1.png"
    assert run(capsys, "search", place, "--key", "cats/1.png", "--radius", 0).count("cats/1.png") == 2

    facts = json.loads(run(capsys, "index", "info", place, "--json"))
    assert (facts["items"], facts["bits"], facts["plan"]) == (11, 32, "scan")
    assert "images from  " in run(capsys, "index", "info", place)
    assert "compared     11 codes a query, the mean of 5 by scan" in run(capsys, "index", "info", place, "--sample", 5)
    facts = json.loads(run(capsys, "index", "info", place, "--sample", 50, "--json"))
    assert (facts["mean_compared"], facts["searched_by"]) == (11, {"scan": 11})
    assert "at least 1" in fail(capsys, "index", "info", place, "--sample", 0)
    assert "made with another model" in fail(capsys, "index", "add", photos, "--index", place, "--model", other_model)
    assert "11 items have codes of the new model" in run(capsys, "index", "upgrade", place, "--model", other_model)
    assert json.loads(run(capsys, "index", "info", place, "--json"))["bits"] == 24
    assert "1 removed" in run(capsys, "index", "remove", place, "cats/1.png")
    assert "MB now" in run(capsys, "index", "compact", place)
    assert run(capsys, "index", "verify", place) == f"{place}: 10 items in 1 blocks, ok.\n"
    assert json.loads(run(capsys, "index", "verify", place, "--json"))["ok"] is True


def test_codes_are_imported_and_their_duplicates_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bits = np.random.default_rng(0).random((40, 16)) < 0.5
    bits[7] = bits[3]
    np.savez(tmp_path / "codes.npz", codes=pack(bits), bits=np.int64(16), keys=np.array([f"k{n}" for n in range(40)]))
    out = run(capsys, "index", "import", tmp_path / "codes.npz", "--index", tmp_path / "i")
    assert out == f"40 added, 0 replaced. {tmp_path / 'i'} holds 40 items of 16 bits.\n"
    assert "0 added, 40 replaced" in run(capsys, "index", "import", tmp_path / "codes.npz", "--index", tmp_path / "i")
    found = json.loads(run(capsys, "index", "duplicates", tmp_path / "i", "--json"))
    items = [{"key": "k3", "distance": 0}, {"key": "k7", "distance": 0}]
    assert found["groups"] == [{"size": 2, "keep": "k3", "items": items}]
    assert run(capsys, "index", "duplicates", tmp_path / "i").splitlines() == ["2: k3, k7", "1 groups, 2 of 40 items."]


def test_duplicates_are_written_to_files_and_compared_since(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path, model: Path
) -> None:
    index, other, state = tmp_path / "i", tmp_path / "other", tmp_path / "state.json"
    (photos / "copies").mkdir()
    (photos / "copies" / "cat.png").write_bytes((photos / "cats" / "1.png").read_bytes())
    run(capsys, "index", "add", photos, "--model", model, "--index", index)
    files = ("--csv", tmp_path / "d.csv", "--page", tmp_path / "d.html", "--list", tmp_path / "others.txt", "--since", state)
    out = run(capsys, "index", "duplicates", index, "--radius", 0, "--keep-best", "name=copies/*", *files)
    assert out.splitlines()[-1] == f"{len((tmp_path / 'others.txt').read_text().splitlines())} items need not be kept."
    assert f"{photos / 'cats' / '1.png'}\n" in (tmp_path / "others.txt").read_text()
    assert "copies/cat.png,yes" in (tmp_path / "d.csv").read_text()
    assert "<figure" in (tmp_path / "d.html").read_text()
    found = json.loads(run(capsys, "index", "duplicates", index, "--since", state, "--json"))
    assert (found["items"], found["compared"], found["radius"], found["refine_radius"]) == (13, 0, 0, None)

    run(capsys, "index", "add", photos / "copies", "--model", model, "--index", other)
    found = json.loads(run(capsys, "index", "duplicates", other, "--against", index, "--max-group", 2, "--json"))
    assert [item.get("other", False) for item in found["groups"][0]["items"]] == [True, True]
    assert "groups have more items than --max-group" in run(
        capsys, "index", "duplicates", index, "--radius", 32, "--max-group", 2
    )
    for options, message in (
        (("--radius", 1, "--precision", 0.9), "Give --radius or --precision, not both."),
        (("--precision", 0.9), "was not calibrated"),
        (("--refine",), "There is no refinement"),
        (("--page", tmp_path), "it is a folder"),
    ):
        assert message in fail(capsys, "index", "duplicates", index, *options)


@pytest.mark.parametrize("format", ["faiss", "usearch", "parquet", "npz"])
def test_exported_index_is_imported_with_its_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, photos: Path, model: Path, other_model: Path, format: str
) -> None:
    run(capsys, "index", "add", photos, "--model", model, "--index", tmp_path / "i")
    out = run(capsys, "index", "export", tmp_path / "i", tmp_path / "codes", "--format", format)
    assert out == f"{tmp_path / 'codes'} holds the 12 items of {tmp_path / 'i'}, 32 bits each.\n"
    result = json.loads(run(capsys, "index", "export", tmp_path / "i", tmp_path / "codes", "--format", format, "--json"))
    assert result == {"items": 12, "bits": 32, "path": str(tmp_path / "codes")}
    arguments = ("index", "import", tmp_path / "codes", "--format", format, "--index", tmp_path / "again", "--model")
    assert "codes of another model than the index" in fail(capsys, *arguments, other_model)
    assert not (tmp_path / "again").exists()
    assert "12 added, 0 replaced" in run(capsys, *arguments, model)
    query = photos / "dogs" / "9.png"
    found = [run(capsys, "search", tmp_path / name, query, "-k", 12) for name in ("i", "again")]
    assert found[0] == found[1]


def test_a_damaged_index_has_exit_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from proxyhash.index.local.index import LocalIndex

    with LocalIndex.open_folder(tmp_path / "i", bits=8) as index:
        index.add(np.zeros((2, 1), np.uint8), ["a", "b"])
        index.store.run("DELETE FROM items WHERE key = 'a'")
    with pytest.raises(SystemExit) as stopped:
        main(["index", "verify", str(tmp_path / "i")])
    assert stopped.value.code == 1
    assert capsys.readouterr().out.splitlines()[0] == "1 codes have no item."


def test_a_model_is_calibrated_with_its_validation_images(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: Path, photos: Path
) -> None:
    from proxyhash.models.hasher import Hasher

    hasher = Hasher.load(model)
    own = tmp_path / "own"
    hasher.save(own)
    assert "does not say what it was trained with" in fail(capsys, "index", "calibrate", own)
    for number in range(12, 60):
        path = photos / ("cats" if number % 2 else "dogs") / f"{number}.png"
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    hasher.metadata = {"data": {"path": str(photos), "tags": None, "fold": 0}}
    hasher.save(own)
    assert "A match is more likely right than wrong up to" in run(capsys, "index", "calibrate", own)
    run(capsys, "index", "add", photos, "--model", own, "--index", tmp_path / "i")
    assert json.loads(run(capsys, "index", "info", tmp_path / "i", "--json"))["calibrated"] is True
    assert "same label" in run(capsys, "search", tmp_path / "i", photos / "cats" / "1.png")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("index info none", "There is no index at none"),
        ("search none --key a", "There is no index at none"),
        ("index add absent --index none", "or run proxyhash quickstart, which makes a model of your images first."),
        ("search i -k 0 --key a", "k must be at least 1, not 0."),
        ("search i -k two --key a", "it must be a whole number, not two."),
        ("search i --key nope", "The index has no item nope."),
        ("search i", "Search with images, with --vectors and a file, or with --key"),
        ("search i query.jpg", "has no model, so search it with codes."),
        ("search i --key a --radius -1", "radius must be at least 0, not -1."),
        ("search i --key a --show x.gif", "must end in .png or .jpg."),
        ("search i --key a --nprobe 3", "This index is scanned"),
        ("index remove i", "Say which keys to remove."),
        ("index remove i nope", "The index has no item nope; nothing was removed."),
        ("index duplicates i --radius -1", "radius must be at least 0, not -1."),
        ("index import absent.npz --index i", "There is no file absent.npz."),
        ("index upgrade i --model i", "i is not a model: it has no config.json."),
    ],
)
def test_mistakes_are_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    from proxyhash.index import Index

    monkeypatch.chdir(tmp_path)
    with Index.open("i", bits=8) as index:
        index.add(np.zeros((1, 1), np.uint8), ["a"])
    error = fail(capsys, *arguments.split())
    assert sentence in error
    assert error.count("\n") == 1


def test_backup_restore_and_salvage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "codes.npz", codes=np.eye(40, 32, dtype=np.uint8))
    place, copy = tmp_path / "i", tmp_path / "b"
    run(capsys, "index", "import", tmp_path / "codes.npz", "--index", place)
    out = run(capsys, "index", "backup", place, copy)
    assert out.startswith(f"40 items and 1 blocks of codes copied, 0 items removed. {copy} holds 40 items, ")
    done = json.loads(run(capsys, "index", "backup", place, copy, "--json"))
    assert (done["items"], done["items_copied"], done["blocks_copied"]) == (40, 0, 0)
    assert "--replace" in fail(capsys, "index", "restore", copy, place)
    assert run(capsys, "index", "restore", copy, place, "--replace") == f"{place} holds the 40 items of {copy}.\n"
    assert run(capsys, "index", "salvage", place, tmp_path / "s") == f"{tmp_path / 's'} holds 40 items that were intact.\n"

    with sqlite3.connect(place / "index.sqlite") as connection:
        connection.execute("UPDATE items SET key = key || '?' WHERE item_id < 25")
    connection.close()
    with pytest.raises(SystemExit) as stopped:
        main(["index", "salvage", str(place), str(tmp_path / "saved")])
    assert stopped.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{tmp_path / 'saved'} holds 15 items that were intact.", "25 items are lost:"]
    assert lines[2] == "  0  ?: its key and labels are damaged"
    assert lines[22:] == ["  ... (--json lists all)"]
    with pytest.raises(SystemExit) as stopped:
        main(["index", "salvage", str(place), str(tmp_path / "again"), "--json"])
    assert stopped.value.code == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["saved"], len(report["lost"]), report["complete"]) == (15, 25, False)


def test_migrate_brings_an_index_to_this_release(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = index_folder("scanned-index", tmp_path)
    assert "has the format of this release; it holds " in run(capsys, "index", "migrate", folder)
    count = json.loads(run(capsys, "index", "migrate", folder, "--json"))["items"]
    with sqlite3.connect(folder / "index.sqlite") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)
        assert connection.execute("SELECT count(*) FROM items").fetchone() == (count,)
    connection.close()
