import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from proxyhash.data.download import extract_archive
from proxyhash.utils.errors import InputError


def write_tar(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_a_folder_is_extracted_with_what_is_in_it(tmp_path: Path) -> None:
    archive = write_tar(
        tmp_path / "a.tar.gz", special("data", tarfile.DIRTYPE), ("data/one", b"1"), ("./data/deep/two", b"2" * 99)
    )
    heard: list[float] = []
    extract_archive(archive, tmp_path / "data", lambda _, fraction: heard.append(fraction))
    assert (tmp_path / "data" / "one").read_bytes() == b"1"
    assert (tmp_path / "data" / "deep" / "two").read_bytes() == b"2" * 99
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_a_folder_that_is_already_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").write_text("kept")
    extract_archive(write_tar(tmp_path / "a.tar.gz", ("data/one", b"1")), tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "member",
    [
        ("data/../../outside", b"x"),
        special("data/link", tarfile.SYMTYPE, "/etc/passwd"),
        special("data/link", tarfile.LNKTYPE, "../outside"),
        special("data/device", tarfile.CHRTYPE),
        special("data/pipe", tarfile.FIFOTYPE),
    ],
    ids=["above", "symlink", "hardlink", "device", "pipe"],
)
def test_unsafe_members_are_refused_before_anything_is_written(
    member: tuple[str, bytes] | tarfile.TarInfo, tmp_path: Path
) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    archive = write_tar(folder / "a.tar.gz", ("data/one", b"1"), member)
    with pytest.raises(InputError, match="was refused: its member"):
        extract_archive(archive, folder / "data")
    assert [path.name for path in folder.iterdir()] == ["a.tar.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]


def test_an_absolute_path_is_extracted_inside_the_folder_only(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    archive = write_tar(tmp_path / "a.tar.gz", ("data/one", b"1"), (str(outside), b"x"))
    extract_archive(archive, tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "data"]


def damage(content: bytes, how: str) -> bytes:
    if how == "truncated":
        return content[: len(content) // 2]
    if how == "flipped bytes":
        return content[:400] + bytes(255 - byte for byte in content[400:500]) + content[500:]
    return b"not an archive" if how == "text" else b""


@pytest.mark.parametrize("how", ["truncated", "flipped bytes", "text", "empty"])
def test_a_damaged_archive_leaves_nothing_behind(how: str, tmp_path: Path) -> None:
    text = " ".join(str(number * number) for number in range(9_000)).encode()
    archive = write_tar(tmp_path / "a.tar.gz", ("data/one", text), ("data/two", text[::-1]))
    archive.write_bytes(damage(archive.read_bytes(), how))
    with pytest.raises(InputError, match=r"cannot be extracted: .*\w\.$"):
        extract_archive(archive, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_another_folder_in_the_archive_is_named(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tar.gz", ("other/one", b"1"))
    with pytest.raises(InputError, match="holds no folder data"):
        extract_archive(archive, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.data.download.MAX_EXTRACTED_BYTES", 1 << 20)
    archive = write_tar(tmp_path / "a.tar.gz", ("data/zeros", bytes(2 << 20)))
    with pytest.raises(InputError, match="would extract to more than"):
        extract_archive(archive, tmp_path / "data")


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(InputError, match=r"cannot be extracted: .*Permission denied"):
        extract_archive(write_tar(tmp_path / "a.tar.gz", ("data/one", b"1")), tmp_path / "data")


def test_a_killed_extraction_leaves_no_half_folder(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tar.gz", *((f"data/{number}", b"x" * 1000) for number in range(50)))
    script = """
import sys, time
from pathlib import Path
from proxyhash.data.download import extract_archive
def slow(work, fraction):
    if fraction > 0.5:
        Path(sys.argv[2]).write_text("half"); time.sleep(60)
extract_archive(Path(sys.argv[1]), Path(sys.argv[1]).with_name("data"), slow)
"""
    half = tmp_path / "half"
    process = subprocess.Popen([sys.executable, "-c", script, archive, half], env=os.environ)
    try:
        while not half.exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert not (tmp_path / "data").exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "data").exists()
    extract_archive(archive, tmp_path / "data")
    assert len(list((tmp_path / "data").iterdir())) == 50
