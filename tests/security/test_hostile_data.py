"""Hostile data: tables, tar files and file names that anybody may have made."""

import io
import os
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.images import write_images
from helpers.terminal import terminal_output
from proxyhash import Index
from proxyhash.cli.app import main
from proxyhash.data import SkippedItems, load_dataset
from proxyhash.data.download import extract_archive
from proxyhash.data.readers.webdataset import open_tar
from proxyhash.data.shards import list_shards
from proxyhash.utils.errors import InputError

MEGABYTE = "x" * 1_000_000


def folder_with_table(root: Path, text: str | bytes) -> Path:
    write_images(root, ["a.png", "b.png", "c.png"])
    (root / "metadata.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"file_name,label\na.png,{MEGABYTE}\nb.png,x\n", "more than 1,000,000 characters in line 2"),
        (f'file_name,label\na.png,"{MEGABYTE}"\nb.png,x\n', "more than 1,000,000 characters in line 2"),
        (f"{MEGABYTE},file_name\nx,a.png\n", "more than 1,000,000 characters in line 1"),
        (
            f"file_name,label\na.png,{MEGABYTE[:200_000]}\n",
            "a field of more than 131,072 characters in the row that begins in",
        ),
        (
            'file_name,label\na.png,"' + "b.png,x\n" * 50_000,
            "a field of more than 131,072 characters .* is a quote not closed",
        ),
        ('file_name,label\na.png,"x\nb.png,y\nc.png,z\n', "a quote in line 2 that is not closed"),
        ('file_name,label\na.png,x\n"b.png,y\nc.png",z\n', "a quote in line 3 that is not closed"),
        (b"file_name,label\na.png,\xff\xfe\n", r"is not UTF-8 text \(line 2\)"),
        (b"\0" * 4096, "has no column file_name in its first line"),
    ],
    ids=["field", "quoted", "header", "limit", "long quote", "open quote", "quote pair", "bytes", "zeros"],
)
def test_hostile_tables_are_one_sentence(text: str | bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        load_dataset(folder_with_table(tmp_path / "photos", text))


def test_rows_with_nul_bytes_and_paths_that_lead_out_are_counted(tmp_path: Path) -> None:
    write_images(tmp_path, ["secret.png"])
    rows = [
        "a.png",
        "b\0.png",
        "../secret.png",
        "/etc/passwd",
        f"photos/../../{tmp_path.name}/secret.png",
        "\0",
        "\x1b[2J.png",
    ]
    root = folder_with_table(tmp_path / "photos", "file_name,label\n" + "".join(f"{name},x\0y\n" for name in rows))
    data = load_dataset(root)
    assert [data.images.key(0), data.class_names] == ["a.png", ("x\0y",)]
    assert data.skipped.counts["outside the folder"] + data.skipped.counts["row whose file is missing"] == 6


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, content


@pytest.fixture
def png(tmp_path: Path) -> bytes:
    write_images(tmp_path, ["one.png"])
    return (tmp_path / "one.png").read_bytes()


def test_names_in_a_tar_file_are_never_used_as_paths(png: bytes, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret.png").write_bytes(b"not read")
    names = ["../secret.png", str(tmp_path / "secret.png"), "a/../../secret.png"]
    images, _ = open_tar(write_tar(tmp_path / "inner" / "a.tar", *(member(name, png) for name in names)), SkippedItems())
    assert [images.key(index) for index in range(3)] == [f"a.tar/{name}" for name in names]
    assert all(images.read(index).shape == (12, 12, 3) for index in range(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner", "one.png", "secret.png"]


def test_links_repeated_names_and_names_that_are_not_utf8_are_counted_before_encoding(png: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape") as tar:
        for info, content in (
            member("1.png", png),
            member("1.png", b"another"),
            member(os.fsdecode(b"\xff\xfe.png"), png),
            member("link.png", kind=tarfile.SYMTYPE, target="/etc/passwd"),
            member("hard.png", kind=tarfile.LNKTYPE, target="1.png"),
            member("device.png", kind=tarfile.CHRTYPE),
            member("1.cls", b"cat"),
            member("notes.txt", b"x"),
        ):
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    skipped = SkippedItems()
    images, labels = list_shards(path, skipped=skipped)[0].load(skipped)
    assert ([images.key(index) for index in range(len(images))], labels) == (["a.tar/1.png"], [("cat",)])
    assert skipped.sentences() == [
        "second file of a name in a tar file: 1 (a.tar/1.png)",
        r"file name that is not UTF-8: 1 (a.tar/\xff\xfe.png)",
        "link in a tar file: 2 (a.tar/link.png; a.tar/hard.png)",
        "image name of something that is not a file: 1 (a.tar/device.png)",
        "file of another kind: 1 (a.tar/notes.txt)",
    ]
    with pytest.raises(InputError, match="as asked: second file of a name in a tar file"):
        list_shards(path)[0].load(SkippedItems(strict=True))


def test_a_tar_file_with_such_names_is_encoded_and_imported(
    png: bytes, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tar(tmp_path / "a.tar", member("1.png", png), member("1.png", png), member("\x1b[2J.png", png))
    main(["encode", str(model), str(tmp_path / "a.tar"), "--shards", str(tmp_path / "shards")])
    assert "Left out: second file of a name in a tar file: 1 (a.tar/1.png)" in capsys.readouterr().out
    main(["index", "import", str(tmp_path / "shards"), "--model", str(model), "--index", str(tmp_path / "i")])
    with Index.open(tmp_path / "i") as index:
        assert len(index) == 2


def negative_size(header: bytearray) -> None:
    header[124:136] = (-(2 * 512)).to_bytes(12, "big", signed=True)


def enormous_size(header: bytearray) -> None:
    header[124:136] = b"\x80" + (2**60).to_bytes(11, "big")


def enormous_sparse_file(header: bytearray) -> None:
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[483:495] = b"77777777777\0"  # its real size: 8 GiB


@pytest.mark.parametrize("damage", [negative_size, enormous_size, enormous_sparse_file])
def test_sizes_that_lie_neither_hang_nor_fill_the_memory(
    damage: Callable[[bytearray], None], png: bytes, tmp_path: Path
) -> None:
    path = write_tar(tmp_path / "a.tar", member("1.png", png), member("2.png", png))
    content = bytearray(path.read_bytes())
    second = content.index(b"2.png")
    header = content[second : second + 512]
    damage(header)
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    content[second : second + 512] = header
    path.write_bytes(content)
    try:
        images, _ = open_tar(path, SkippedItems())
    except InputError as error:
        assert "is not a tar file that can be read" in str(error)  # noqa: PT017  both answers are fine
    else:
        assert len(images) == 1


@pytest.mark.parametrize(
    "unsafe",
    [
        member("data/../../outside", b"x"),
        member("data/link", kind=tarfile.SYMTYPE, target="../../outside"),
        member("data/link", kind=tarfile.LNKTYPE, target="../../outside"),
        member("data/device", kind=tarfile.BLKTYPE),
    ],
    ids=["traversal", "symlink", "hardlink", "device"],
)
def test_unsafe_members_of_an_archive_write_nothing(unsafe: tuple[tarfile.TarInfo, bytes], tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    archive = write_tar(inner / "a.tar", member("data/one", b"1"), unsafe)
    with pytest.raises(InputError, match="was refused: its member"):
        extract_archive(archive, inner / "data")
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "a.tar"]


def test_a_terminal_shows_the_escape_sequences_of_names(tmp_path: Path) -> None:
    """A real terminal: what arrives there has no escape sequence but the program's own styles."""
    with Index.open(tmp_path / "i", bits=8) as index:
        index.add(np.zeros((1, 1), np.uint8), ["\x1b[2J\x1b]0;owned\x07cat\u202egnp.exe"], ["la\x1b[5mbel\r"])
    command = [sys.executable, "-c", "import sys; from proxyhash.cli.app import main; main(sys.argv[1:])"]
    command += ["search", str(tmp_path / "i"), "--key", "\x1b[2J\x1b]0;owned\x07cat\u202egnp.exe"]
    shown = terminal_output(command, TERM="xterm", COLUMNS="200")
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    assert r"\x1b[2J\x1b]0;owned\x07cat\u202egnp.exe" in text
    assert r"la\x1b[5mbel\r" in text


def test_names_in_a_list_that_cannot_be_names_are_counted(model: Path, tmp_path: Path) -> None:
    write_images(tmp_path, ["one.png"])
    listed = tmp_path / "list.txt"
    listed.write_text("one.png\n" + "n" * 5000 + ".png\nnul\0.png\n../../../../etc/passwd\n")
    shard = list_shards(listed)[0]
    assert shard.fingerprint() == shard.fingerprint()
    main(["encode", str(model), str(listed), "--shards", str(tmp_path / "shards")])
    from proxyhash.models.code_shards import read_shard, shard_path

    assert list(read_shard(shard_path(tmp_path / "shards", 0, 1)).keys) == ["one.png"]
