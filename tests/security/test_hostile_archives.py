"""Archives and files of arrays by someone who wants to write elsewhere, run code or fill memory and disk."""

import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxyhash.codes import files
from proxyhash.codes.files import read_code_file
from proxyhash.data import download
from proxyhash.data.download import extract_archive
from proxyhash.data.safe_pickle import load_pickle
from proxyhash.models.code_shards import CodeShard, read_shard, write_shard
from proxyhash.utils.errors import InputError

SHARD = CodeShard(np.zeros((2, 1), np.uint8), ["a", "b"], [(), ()], 8, "m", "i", 0, 1)


class Trap:
    """An object whose unpickling writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (str(self.target),))


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("data/../../outside"),
        link("data/link", "/etc/passwd"),
        link("data/link", "../../outside"),
        link("data/link", "../outside", tarfile.LNKTYPE),
        link("data/pipe", "", tarfile.FIFOTYPE),
        link("data/device", "", tarfile.BLKTYPE),
    ],
    ids=lambda member: f"{member.name} {member.linkname}",
)
def test_members_that_lead_out_of_the_folder_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    (tmp_path / "in").mkdir()
    archive = write_tar(tmp_path / "in" / "a.tar", (tarfile.TarInfo("data/good"), b"1"), (member, b""))
    with pytest.raises(InputError, match="is unsafe"):
        extract_archive(archive, tmp_path / "in" / "data")
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.tar"]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_file_behind_a_link_of_the_same_archive_stays_inside(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tar", (link("data/up", "."), b""), (tarfile.TarInfo("data/up/../../../outside"), b"x"))
    with pytest.raises(InputError, match="is unsafe"):
        extract_archive(archive, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MAX_EXTRACTED_BYTES", 1000)
    archive = write_tar(tmp_path / "a.tar", (tarfile.TarInfo("data/zeros"), b"\0" * 2000))
    with pytest.raises(InputError, match="would extract to more than"):
        extract_archive(archive, tmp_path / "data")


def write_npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def test_objects_in_a_file_of_arrays_are_never_unpickled(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    path = write_npz(tmp_path / "codes.npz", codes=npy(np.ones((2, 3))), keys=npy(trap))
    with pytest.raises(InputError, match="holds pickled objects"):
        read_code_file(path)
    with pytest.raises(InputError, match="is not a whole shard of codes"):
        read_shard(path)
    (tmp_path / "codes.npz").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(InputError, match="cannot be read as"):
        read_code_file(path)
    with pytest.raises(InputError, match="was refused"):
        load_pickle(path)
    assert not (tmp_path / "sprung").exists()


def test_a_bomb_of_arrays_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 20)
    path = write_npz(tmp_path / "codes.npz", codes=npy(np.zeros((1 << 22, 1), np.uint8)))
    assert path.stat().st_size < 1 << 14
    for read in (read_code_file, read_shard):
        with pytest.raises(InputError, match="unpacks to 4,194,432 bytes, far more than its size"):
            read(path)


def test_an_array_that_claims_more_than_memory_is_refused(tmp_path: Path) -> None:
    content = npy(np.zeros((2, 1), np.uint8)).replace(b"(2, 1), }          ", b"(99999999999999, 1)}")[:-1]
    path = write_npz(tmp_path / "codes.npz", codes=content)
    with pytest.raises(InputError):
        read_code_file(path)


def test_members_with_paths_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write_npz(tmp_path / "in" / "codes.npz", **{"codes": npy(np.ones((2, 3))), "../../outside": npy(np.ones(2))})
    assert read_code_file(path).bits == 3
    assert [item.name for item in tmp_path.iterdir()] == ["in"]


def test_labels_of_a_shard_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    path = write_shard(tmp_path, SHARD)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "sha256"}
    for labels in ("[" * 100_000, "1" * 5_000, '{"a": 1}', "null", "[[[]]]"):
        arrays["label_lists"] = np.array([labels, "[]"])
        np.savez(path, **arrays, sha256=files.arrays_sha256(arrays))
        with pytest.raises(InputError):
            read_shard(path)
