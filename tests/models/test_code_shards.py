"""Shards of codes: cut the same way in every run, whole or absent, and two real processes of which one is killed."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proxyhash import Index
from proxyhash.cli.app import main
from proxyhash.codes.files import arrays_sha256
from proxyhash.data import SkippedItems
from proxyhash.data.shards import list_shards
from proxyhash.models.code_shards import CodeShard, encode_shards, read_shard, shard_path, write_shard
from proxyhash.models.hasher import Hasher
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads
from proxyhash.utils.process_rank import ProcessRank, get_process_rank


def tar_of(photos: Path, path: Path) -> Path:
    """Pack pictures as webdataset does: 7.png beside 7.cls."""
    with tarfile.open(path, "w") as tar:
        for picture in sorted(photos.rglob("*.png")):
            tar.add(picture, f"{picture.parent.name}/{picture.name}")
            text = picture.parent.name.encode()
            label = tarfile.TarInfo(f"{picture.parent.name}/{picture.stem}.cls")
            label.size = len(text)
            tar.addfile(label, io.BytesIO(text))
    return path


def encoded(model: Path, source: Path, folder: Path, size: int = 5, rank: ProcessRank | None = None) -> tuple[int, int]:
    done = encode_shards(Hasher.load(model), list_shards(source, size), folder, SkippedItems(), rank=rank)
    return done.written, done.existing


def all_codes(folder: Path) -> dict[str, bytes]:
    shards = [read_shard(path) for path in sorted(folder.glob("*.npz"))]
    return {key: code.tobytes() for shard in shards for key, code in zip(shard.keys, shard.codes, strict=True)}


def expected(model: Path, photos: Path) -> dict[str, bytes]:
    paths = sorted(photos.rglob("*.png"))
    codes = Hasher.load(model).encode(paths)
    return {str(path.relative_to(photos)): code.tobytes() for path, code in zip(paths, codes, strict=True)}


def test_folders_lists_and_tars_give_the_same_codes(model: Path, photos: Path, tmp_path: Path) -> None:
    truth = expected(model, photos)
    listed = photos / "list.txt"
    listed.write_text("# some\n" + "\n".join(truth) + "\n")
    tars = tmp_path / "tars"
    tars.mkdir()
    tar_of(photos / "cats", tars / "a.tar")
    tar_of(photos / "dogs", tars / "b.tar")
    for number, (source, prefixes) in enumerate({photos: ("",), listed: ("",), tars: ("a.tar/", "b.tar/")}.items()):
        encoded(model, source, tmp_path / str(number))
        found = all_codes(tmp_path / str(number))
        plain = {
            key.removeprefix(prefix): code for prefix in prefixes for key, code in found.items() if key.startswith(prefix)
        }
        assert plain == truth
    shards = [read_shard(shard_path(tmp_path / "2", number, 2)) for number in (0, 1)]
    assert [set(shard.labels) for shard in shards] == [{("cats",)}, {("dogs",)}]
    assert read_shard(shard_path(tmp_path / "0", 2, 3)).labels == [("dogs",), ("dogs",)]


def test_processes_share_the_pieces_and_any_number_goes_on(model: Path, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    assert encoded(model, photos, folder, 2, ProcessRank(1, 4)) == (2, 0)
    assert {path.name for path in folder.iterdir()} == {"000001-of-000006.npz", "000005-of-000006.npz"}
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert encoded(model, photos, folder, 2) == (4, 2)
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())
    assert all_codes(folder) == expected(model, photos)


def test_damage_other_models_and_changed_images_are_encoded_again(
    model: Path, other_model: Path, photos: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shards"
    encoded(model, photos, folder)
    damaged = shard_path(folder, 1, 3)
    whole = damaged.read_bytes()
    place = whole.index(read_shard(damaged).codes.tobytes())
    damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(InputError, match="encode it again"):
        read_shard(damaged)
    assert encoded(model, photos, folder) == (1, 2)
    assert damaged.read_bytes() == whole or all_codes(folder) == expected(model, photos)
    first = photos / "cats" / "0.png"
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(first)
    assert encoded(model, photos, folder) == (1, 2)
    assert all_codes(folder) == expected(model, photos)
    assert encoded(other_model, photos, folder) == (3, 0)


def test_images_that_cannot_be_read_are_counted(model: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "cats" / "2.png").write_bytes(b"no picture")
    problems = SkippedItems()
    encode_shards(Hasher.load(model), list_shards(photos, 100), tmp_path / "shards", problems)
    shard = read_shard(shard_path(tmp_path / "shards", 0, 1))
    assert (len(shard), shard.num_skipped, problems.counts["unreadable image"]) == (11, 1, 1)


def test_two_processes_one_killed_and_started_again(model: Path, photos: Path, tmp_path: Path) -> None:
    """The second process is killed with shards to do, while the first finishes; then only its share is made."""
    shards = tmp_path / "shards"
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\n"
        "from proxyhash.models import code_shards\n"
        "from proxyhash.cli.app import main\n"
        "write = code_shards.write_shard\n"
        "code_shards.write_shard = lambda *given: (write(*given), print('written', flush=True), time.sleep(60))\n"
        "main(sys.argv[1:])\n"
    )
    command = ["encode", str(model), str(photos), "--shards", str(shards), "--shard-size", "2"]
    plain = [sys.executable, "-c", "import sys; from proxyhash.cli.app import main; main(sys.argv[1:])"]
    ranks = [{**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": str(rank)} for rank in (0, 1)]
    with (
        subprocess.Popen([*plain, *command], env=ranks[0], stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen([sys.executable, str(slow), *command], env=ranks[1], stdout=subprocess.PIPE, text=True) as second,
    ):
        assert second.stdout is not None
        assert second.stdout.readline() == "written\n"
        second.send_signal(signal.SIGKILL)
        output, _ = first.communicate(timeout=120)
    assert "Process 0 of 2: 3 shards written, 0 existed; 6 images encoded" in output
    assert len(list(shards.glob("0*.npz"))) == 4
    with pytest.raises(SystemExit):
        main(["index", "import", str(shards), "--index", str(tmp_path / "too early")])
    again = subprocess.run([*plain, *command], env=ranks[1], capture_output=True, text=True, check=True, timeout=120)
    assert "Process 1 of 2: 2 shards written, 1 existed; 4 images encoded" in again.stdout
    assert all_codes(shards) == expected(model, photos)
    assert not list(shards.glob(".*"))


def test_shards_come_together_in_an_index(
    model: Path, other_model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there, index = tmp_path / "here", tmp_path / "there", str(tmp_path / "index")
    encoded(model, photos, here, rank=ProcessRank(0, 2))
    encoded(model, photos, there, rank=ProcessRank(1, 2))
    with pytest.raises(SystemExit):
        main(["index", "import", str(here), "--index", index, "--model", str(model)])
    assert "lacks 1 shards, the first is number 1" in capsys.readouterr().err
    for line in ("12 added, 0 replaced", "0 added, 12 replaced"):
        main(["index", "import", str(here), str(there), "--index", index, "--model", str(model)])
        assert line in capsys.readouterr().out
    with Index.open(index) as opened:
        picture = photos / "dogs" / "7.png"
        match = opened.search(picture, 1)[0][0]
        assert (match.key, match.distance, match.labels) == ("dogs/7.png", 0, ("dogs",))
    encoded(other_model, photos, tmp_path / "other")
    with pytest.raises(SystemExit):
        main(["index", "import", str(tmp_path / "other"), "--index", index])
    assert "32 bits, not 24" in capsys.readouterr().err


def test_a_folder_of_two_runs_is_refused(model: Path, photos: Path, tmp_path: Path) -> None:
    from proxyhash.index.code_import import find_shards

    encoded(model, photos, tmp_path / "shards", 5)
    encoded(model, photos, tmp_path / "shards", 6)
    with pytest.raises(InputError, match="shards of two different runs"):
        find_shards([tmp_path / "shards"])
    with pytest.raises(InputError, match="no shards of codes"):
        find_shards([photos])


def test_sources_that_cannot_be_cut(tmp_path: Path) -> None:
    twice, mixed, empty = tmp_path / "twice.txt", tmp_path / "mixed.txt", tmp_path / "empty.txt"
    twice.write_text("a.png\na.png\n")
    mixed.write_text("a.png\nb.tar\n")
    empty.write_text("# nothing\n")
    for path, reason in ((twice, "twice"), (mixed, "a list of each"), (empty, "no files"), (tmp_path / "no", "no folder")):
        with pytest.raises(InputError, match=reason):
            list_shards(path)
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"x" * 2000)
    with pytest.raises(InputError, match="not a tar file"):
        list_shards(broken)[0].load(SkippedItems())


def test_ranks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert get_process_rank() == ProcessRank(0, 1, 0)
    alone = available_threads()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert get_process_rank() == ProcessRank(3, 8, 0)
    assert available_threads() == max(1, alone // 2)
    monkeypatch.setenv("RANK", "8")
    with pytest.raises(InputError, match="RANK is 8"):
        get_process_rank()
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(InputError, match="whole numbers"):
        get_process_rank()
    shares = [[number for number in range(10) if ProcessRank(rank, 3).has(number)] for rank in range(3)]
    assert sorted(number for share in shares for number in share) == list(range(10))


SHARD = CodeShard(np.arange(6, dtype=np.uint8).reshape(3, 2), ["a", "b", "c"], [("x",), (), ("y", "z")], 12, "m", "i", 0, 2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bits": 40}, "its arrays do not fit together"),
        ({"bits": 0}, "bits must be at least 1, not 0"),
        ({"bits": "12"}, "bits must be a whole number, not '12'"),
        ({"number": -1}, "number must be at least 0"),
        ({"model": 7}, "its arrays do not fit together"),
        ({"codes": np.zeros((3, 2), np.int64)}, "its arrays do not fit together"),
        ({"codes": np.uint8(3)}, "its arrays do not fit together"),
        ({"keys": ["a"]}, "its arrays do not fit together"),
        ({"labels": [(1,), (2,), (3,)]}, "its arrays do not fit together"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    assert read_shard(write_shard(tmp_path, SHARD)).keys == SHARD.keys
    bits = changes.pop("bits", 12)
    path = write_shard(tmp_path, replace(SHARD, **changes))
    if bits != 12:
        rewrite_header(path, bits=bits)
    with pytest.raises(InputError, match=reason):
        read_shard(path)


def rewrite_header(path: Path, **changes: object) -> None:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "sha256"}
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | changes))
    np.savez(path, **arrays, sha256=arrays_sha256(arrays))


def test_shard_of_a_later_release_names_it(tmp_path: Path) -> None:
    path = write_shard(tmp_path, SHARD)
    rewrite_header(path, format="proxyhash.shard/3", requires="0.9")
    with pytest.raises(InputError, match=r"has the format proxyhash.shard/3 and needs proxyhash 0.9 or later."):
        read_shard(path)
