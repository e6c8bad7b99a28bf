from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.images import write_images
from proxyhash.data import Dataset, load_dataset
from proxyhash.data.readers.metadata import parse_tags
from proxyhash.utils.errors import InputError


def table(tmp_path: Path, text: str | bytes, *names: str) -> Path:
    root = tmp_path / "photos"
    write_images(root, names or ("a.png", "b.png", "c.png"))
    (root / "metadata.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def keys(data: Dataset) -> list[str]:
    return [data.images.key(index) for index in range(len(data))]


def test_labels(tmp_path: Path) -> None:
    data = load_dataset(table(tmp_path, "file_name,label\nb.png,dog\na.png,cat\nc.png,\n"))
    assert (data.name, data.kind, data.class_names) == ("photos", "classes", ("cat", "dog"))
    assert keys(data) == ["b.png", "a.png", "c.png"]
    assert data.require_labels().values.tolist() == [1, 0, -1]
    assert data.labeled().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (("sky; palm tree;sky", "palm tree", "sea, calm"), ("palm tree", "sea, calm", "sky")),
        (('"sky, palm tree,"', "palm tree", ""), ("palm tree", "sky")),
        (("sky tree", " tree ", ""), ("sky", "tree")),
    ],
    ids=["semicolons", "commas", "spaces"],
)
def test_tags_by_the_column_s_separator(cells: tuple[str, ...], names: tuple[str, ...], tmp_path: Path) -> None:
    quoted = [cell if cell.startswith('"') else f'"{cell}"' for cell in cells]
    data = load_dataset(
        table(tmp_path, "file_name,tags\n" + "".join(f"{n}.png,{c}\n" for n, c in zip("abc", quoted, strict=True)))
    )
    assert (data.kind, data.class_names) == ("tags", names)
    tags = data.require_tags().values
    assert tags[1].sum() == 1
    assert tags[1, names.index("palm tree" if "palm tree" in names else "tree")]
    assert len(data.labeled()) == (3 if cells[2] else 2)


@given(
    st.lists(
        st.sets(st.text(st.characters(blacklist_characters=";", codec="utf-8"), min_size=1).map(str.strip).filter(bool))
    )
)
def test_every_tag_comes_back(sets: list[set[str]]) -> None:
    labels = parse_tags([";".join(tags) + ";" for tags in sets])
    assert [set(labels.names_of(index)) for index in range(len(sets))] == sets


def test_a_split_column_names_the_parts(tmp_path: Path) -> None:
    text = "file_name,split,label\na.png,train,x\nb.png, TEST ,x\nc.png,,x\ntrain/d.png,database,x\n"
    data = load_dataset(table(tmp_path, text, "a.png", "b.png", "c.png", "train/d.png"))
    assert data.splits.tolist() == [0, 1, -1, 2]


def test_without_it_folders_do(tmp_path: Path) -> None:
    names = ("train/a.png", "val/b.png", "Database/deep/c.png", "other/d.png", "train.png")
    data = load_dataset(table(tmp_path, "file_name,label\n" + "".join(f"{name},x\n" for name in names), *names))
    assert data.splits.tolist() == [0, 1, 2, -1, -1]


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbffile_name,label\r\na.png,x\r\n",
        b" File_Name , LABEL,comment\na.png,x,hello\n",
        b'"file_name","label"\n"./a.png","x"\n',
        b"label,file_name\nx,a.png,more,cells\n\n",
    ],
    ids=["byte order mark", "spaces and capitals", "quotes", "too many cells"],
)
def test_dialects_are_understood(text: bytes, tmp_path: Path) -> None:
    data = load_dataset(table(tmp_path, text))
    assert (keys(data), data.class_names) == (["a.png"], ("x",))
    assert data.skipped.sentences() == ["image without a row: 2 (b.png; c.png)"]


def test_backslashes_are_folders(tmp_path: Path) -> None:
    data = load_dataset(table(tmp_path, "file_name,label\ntrain\\a.png,x\n", "train/a.png"))
    assert keys(data) == ["train/a.png"]
    assert data.splits.tolist() == [0]


def test_without_labels_it_is_a_list(tmp_path: Path) -> None:
    for header in ("file_name", "file_name,label", "file_name,tags"):
        assert load_dataset(table(tmp_path, f"{header}\na.png\nb.png\n")).kind == "unlabeled"


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    names = ["a.png", "./a.png", "absent.png", "", "../outside.png", "/etc/passwd", "x" * 300 + ".png", "nul\0.png", ".."]
    write_images(tmp_path, ["outside.png"])
    root = table(tmp_path, "file_name,label\n" + "".join(f"{name},x\n" for name in names) + "link.png,x\nloop.png,x\n")
    (root / "link.png").symlink_to(tmp_path / "outside.png")
    (root / "loop.png").symlink_to("loop.png")
    data = load_dataset(root)
    assert keys(data) == ["a.png"]
    assert data.skipped.counts.pop("image without a row") == 2
    assert sum(data.skipped.counts.values()) == 10
    assert data.skipped.counts["second row of a file"] == 1
    assert data.skipped.counts["row without a file name"] == 1
    assert data.skipped.examples["row without a file name"] == ["line 5"]
    outside = data.skipped.examples["outside the folder"]
    assert {"../outside.png", "/etc/passwd", "link.png", ".."} <= set(outside)
    assert "absent.png" in data.skipped.examples["row whose file is missing"]
    with pytest.raises(InputError, match=r"as asked: second row of a file: a\.png"):
        load_dataset(root, strict=True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "has no column file_name in its first line"),
        (b"a.png,cat\n", "has no column file_name in its first line"),
        (b"file_name;label\na.png;x\n", "has no column file_name in its first line"),
        (b"file_name,label,tags\na.png,x,y\n", "has both label and tags; keep the column"),
        (
            b"file_name,split,label\na.png,tain,x\n",
            "puts a.png into the split 'tain', which is none of train, tr",
        ),
        (b"file_name,label\na.png,x\nb.png,caf\xe9\n", r"is not UTF-8 text \(line 3\); save it as UTF-8"),
        ("file_name,label\na.png,x\n".encode("utf-16"), r"is not UTF-8 text \(line 1\)"),
        (b"file_name,label\n", r"names no image that is there\.$"),
        (b"file_name,label\nz.png,x\n", r"names no image that is there \(row whose file is missing: 1 \(z.png\)\)"),
        (
            b'file_name,label\n"' + b"x" * 200_000 + b'",y\n',
            "a field of more than 131,072 characters in the row that begins in l",
        ),
        (b"file_name,label\na.png,x\nb.png," + b"x" * 1_000_000, "more than 1,000,000 characters in line 3"),
    ],
)
def test_tables_that_cannot_be_used_are_explained(text: bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        load_dataset(table(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('file_name,label\na.png,"x\nb.png,x\nc.png,x\n', 2),
        ('file_name,label\na.png,x\nb.png,"x\nc.png,"x"\n', 3),
        ('file_name,label\na.png,"x\nb.png,x"\nc.png,x\n', 2),
        ('file_name,label\na.png,x\n"b.png,x\nc.png",x\n', 3),
        ('file_name,label,caption\na.png,x,"two\nlines"\nb.png,x,"one\nc.png,x,three\n', 4),
        ('file_name,"label\na.png,x\n', 1),
        ('file_name,label\na.png,"x"y\n', 2),
    ],
    ids=[
        "to the end",
        "to the next quote",
        "to a last quote",
        "in the name",
        "after a long caption",
        "header",
        "text after",
    ],
)
def test_a_quote_that_is_not_closed_is_named_by_its_line(text: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"has a quote in line {line} that is not closed"):
        load_dataset(table(tmp_path, text))


def test_other_columns_may_have_line_breaks_and_quotes(tmp_path: Path) -> None:
    text = 'caption,file_name,label\n"two\nlines, ""quoted""",a.png,x\n5" high,b.png,"the ""y"""\n,c.png,x\n'
    data = load_dataset(table(tmp_path, text))
    assert (keys(data), data.class_names) == (["a.png", "b.png", "c.png"], ('the "y"', "x"))
    assert not data.skipped


def test_the_line_is_right_in_a_long_file(tmp_path: Path) -> None:
    rows = [b"a.png,x"] * 9_000 + [b"a.png,\xe9"]
    with pytest.raises(InputError, match="line 9002"):
        load_dataset(table(tmp_path, b"file_name,label\n" + b"\n".join(rows)))


def test_other_columns_are_values_of_images(tmp_path: Path) -> None:
    rows = ["2020,b.png,dog,Rex,7,x", ',a.png,cat,"two, words",8,y', "2021,gone.png,cat,Tom,9,z"]
    data = load_dataset(table(tmp_path, "\n".join(["Year,File_Name,label,Title, code ,", *rows])))
    assert data.columns == {"Year": ("2020", ""), "Title": ("Rex", "two, words")}
    assert data.subset(np.array([1])).columns == {"Year": ("",), "Title": ("two, words",)}


def test_short_rows_have_missing_values(tmp_path: Path) -> None:
    data = load_dataset(table(tmp_path, "file_name,year\na.png,2020\nb.png\n"))
    assert data.columns == {"year": ("2020", None)}
