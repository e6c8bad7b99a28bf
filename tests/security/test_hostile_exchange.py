"""Hostile, damaged and foreign files of faiss, usearch and parquet: one sentence, and nothing is written."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from usearch.index import Index as UsearchIndex

from helpers.exchange import all_items, codes_of, make_index
from proxyhash import Index, InputError
from proxyhash.cli.app import main
from proxyhash.index.exchange import item_lines, parquet_files
from proxyhash.index.exchange.item_lines import item_lines_path


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, *options: str) -> str:
    """Import a file by the command line, and return the error, after which there is no index."""
    with pytest.raises(SystemExit) as stop:
        main(["index", "import", str(tmp_path / name), "--index", str(tmp_path / "new"), *options])
    assert stop.value.code == 2
    assert not (tmp_path / "new").exists()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def save_faiss(engine: Any, path: Path) -> None:
    (faiss.write_index if isinstance(engine, faiss.Index) else faiss.write_index_binary)(engine, str(path))


def save_floats(path: Path) -> None:
    engine = UsearchIndex(ndim=16)
    engine.add(np.arange(3), np.ones((3, 16), np.float32))
    engine.save(str(path))


def save_several(path: Path) -> None:
    engine = UsearchIndex(ndim=16, metric="hamming", dtype="b1", multi=True)
    engine.add(np.array([1, 1]), np.ones((2, 2), np.uint8))
    engine.save(str(path))


def save_table(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


FOREIGN: list[tuple[str, Callable[[Path], Any], str]] = [
    ("a.faiss", lambda path: path.write_bytes(b""), "cannot be read as faiss"),
    ("a.faiss", lambda path: path.write_text("hello"), "cannot be read as faiss"),
    ("a.faiss", lambda path: save_faiss(faiss.IndexBinaryHNSW(64, 8), path), "holds an IndexBinaryHNSW"),
    ("a.faiss", lambda path: save_faiss(faiss.IndexFlatL2(8), path), "cannot be read as faiss"),
    ("a.faiss", lambda path: save_faiss(faiss.IndexBinaryFlat(8192), path), "codes have up to 4096 bits"),
    ("a.usearch", lambda path: path.write_text("hello"), "cannot be read as usearch"),
    ("a.usearch", save_floats, "holds vectors that are not binary"),
    ("a.usearch", save_several, "several codes for a key"),
    ("a.parquet", lambda path: path.write_text("hello"), "cannot be read as parquet"),
    ("a.parquet", save_table(key=["a"]), "has no column 'code'; it has key"),
    ("a.parquet", save_table(code=["text"]), "must hold packed codes as binary values"),
    ("a.parquet", save_table(code=[b"ab", b"abc"]), "every code must have 2 bytes"),
    ("a.parquet", save_table(code=[b"ab", None]), "every code must have 2 bytes"),
    ("a.parquet", save_table(code=pa.array([], pa.binary())), "holds no codes"),
    ("a.parquet", save_table(code=[b"ab"], key=[None]), "every item needs a key"),
    ("a.parquet", save_table(code=[b"ab"], key=[""]), "A key may not be empty"),
    ("a.parquet", save_table(code=[b"ab"], labels=[[1]]), "must hold texts, or lists of texts"),
    ("a.parquet", save_table(code=[b"ab"], labels=[[None]]), "must hold texts, or lists of texts"),
    ("a.parquet", save_table(code=[b"x" * 600]), "codes have up to 4096 bits"),
    ("a.npz", lambda path: path.write_text("hello"), "cannot be read as .npz"),
]


@pytest.mark.parametrize(("name", "save", "sentence"), FOREIGN)
def test_foreign_file_is_refused_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, save: Callable[[Path], Any], sentence: str
) -> None:
    save(tmp_path / name)
    assert sentence in refused(capsys, tmp_path, name)


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_index(tmp_path / "i").close()
    main(["index", "export", str(tmp_path / "i"), str(tmp_path / "a.faiss")])
    capsys.readouterr()
    assert "There is no file" in refused(capsys, tmp_path, "absent.faiss")
    assert "holds codes of 64 bits, not 60" in refused(capsys, tmp_path, "a.faiss", "--bits", "60")
    assert "There is no format 'csv'" in refused(capsys, tmp_path, "a.faiss", "--format", "csv")
    assert "cannot be read as parquet" in refused(capsys, tmp_path, "a.faiss", "--format", "parquet")
    for arguments, sentence in [
        (["a.csv"], "has none of the endings .faiss, .usearch, .parquet, .npz"),
        (["i"], "none of the endings"),
        (["i", "--format", "npz"], "it is a folder"),
    ]:
        with pytest.raises(SystemExit) as stop:
            main(["index", "export", str(tmp_path / "i"), str(tmp_path / arguments[0]), *arguments[1:]])
        assert stop.value.code == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_faiss_file_that_claims_to_be_huge_takes_no_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    codes = codes_of(50, 64, 0)
    engine = faiss.IndexBinaryFlat(64)
    engine.add(codes)
    save_faiss(engine, tmp_path / "a.faiss")
    content, count, size = (tmp_path / "a.faiss").read_bytes(), struct.pack("<q", 50), struct.pack("<q", 400)
    assert (content.count(count), content.count(size)) == (1, 1)
    for huge in (1 << 30, 1 << 36, (1 << 40) - 8):
        changed = content.replace(size, struct.pack("<q", huge)).replace(count, struct.pack("<q", huge // 8))
        (tmp_path / "a.faiss").write_bytes(changed)
        assert "asks for far more memory than its size" in refused(capsys, tmp_path, "a.faiss")


def test_parquet_file_that_unpacks_to_far_more_than_its_size_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "MAX_UNPACKED", 1 << 20)
    save_table(code=[bytes(64)] * 100_000, key=list(map(str, range(100_000))))(tmp_path / "a.parquet")
    monkeypatch.setattr(parquet_files, "MAX_RATIO", 1)
    assert "far more than its size" in refused(capsys, tmp_path, "a.parquet")


def test_endless_line_of_items_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_index(tmp_path / "i").close()
    main(["index", "export", str(tmp_path / "i"), str(tmp_path / "a.faiss")])
    capsys.readouterr()
    lines = item_lines_path(tmp_path / "a.faiss")
    monkeypatch.setattr(item_lines, "_MAX_LINE_BYTES", 10_000)
    lines.write_bytes(lines.read_bytes() + b'{"key": "' + b"a" * 20_000)
    assert "is not complete" in refused(capsys, tmp_path, "a.faiss")
    lines.write_bytes(lines.read_bytes().replace(b'"key":"item/7"', b'"key":["item/7"]')[: -20_000 - 9])
    assert "a.faiss.items.jsonl is damaged: line 1" in refused(capsys, tmp_path, "a.faiss")
    lines.write_text("[" * 5_000 + "\n")
    assert "is damaged" in refused(capsys, tmp_path, "a.faiss")
    lines.write_text('{"format": "proxyhash.items/9", "requires": "0.7"}\n')
    assert "needs proxyhash 0.7 or later" in refused(capsys, tmp_path, "a.faiss")


def damage(content: bytes, random: np.random.Generator) -> bytes:
    """Return content with a flipped bit, a cut, or zeros."""
    position, changed = int(random.integers(len(content))), bytearray(content)
    kind = random.integers(4)
    if kind == 0:
        return content[:position]
    if kind == 1:
        changed[position : position + 256] = bytes(len(changed[position : position + 256]))
    else:
        changed[position] ^= 1 << int(random.integers(8))
    return bytes(changed)


def check_damage(tmp_path: Path, name: str, damaged: str, count: int, seed: int) -> None:
    """Import damaged files: the same content as before, or an error in one sentence and an empty index."""
    with make_index(tmp_path / "i", 60, 100) as index:
        index.export_file(tmp_path / name)
        expected, content, random = all_items(index), (tmp_path / damaged).read_bytes(), np.random.default_rng(seed)
    for number in range(count):
        (tmp_path / damaged).write_bytes(damage(content, random))
        with Index.open(tmp_path / f"new {number}", bits=60) as new:
            try:
                new.import_file(tmp_path / name)
            except InputError as error:
                assert "\n" not in str(error)  # noqa: PT017
                assert len(new) == 0
            else:
                assert all_items(new) == expected, number


FILES = [
    ("a.faiss", "a.faiss", 6),
    ("a.faiss", "a.faiss.items.jsonl", 6),
    ("a.usearch", "a.usearch", 6),
    ("a.parquet", "a.parquet", 60),
    ("a.npz", "a.npz", 40),
]


@pytest.mark.parametrize(("name", "damaged", "count"), FILES)
def test_damage_is_found_before_anything_is_added(tmp_path: Path, name: str, damaged: str, count: int) -> None:
    check_damage(tmp_path, name, damaged, count, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damaged", "count"), FILES)
def test_much_damage_is_found_before_anything_is_added(tmp_path: Path, name: str, damaged: str, count: int) -> None:
    check_damage(tmp_path, name, damaged, 4 * count, seed=2)
