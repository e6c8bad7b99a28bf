import os
from pathlib import Path

import pytest

from helpers.images import write_images
from proxyhash.data import Dataset, default_protocol, load_dataset
from proxyhash.utils.errors import InputError


def keys(data: Dataset) -> list[str]:
    return [data.images.key(index) for index in range(len(data))]


def classes(data: Dataset) -> list[str | None]:
    return [next(iter(data.labels_of(index)), None) for index in range(len(data))]


def test_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path, ["dogs/2.png", "cats/b.JPG", "cats/a.jpeg", "cats/persian/deep/c.webp"])
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    (tmp_path / "readme.md").write_text("no image")
    data = load_dataset(tmp_path)
    assert keys(data) == ["cats/a.jpeg", "cats/b.JPG", "cats/persian/deep/c.webp", "dogs/2.png"]
    assert classes(data) == ["cats", "cats", "cats", "dogs"]
    assert (data.name, data.class_names, data.kind) == (tmp_path.name, ("cats", "dogs"), "classes")
    assert (data.splits == -1).all()
    assert data.skipped.sentences() == ["file of another kind: 2 (readme.md; cats/notes.txt)"]


@pytest.mark.parametrize(
    ("folders", "parts"),
    [
        (("train", "query", "database"), ("train", "query", "database")),
        (("train", "test"), ("train", "query")),
        (("Train", "VAL"), ("train", "query")),
        (("training", "validation"), ("train", "query")),
        (("queries", "gallery"), ("query", "database")),
    ],
)
def test_folders_of_parts(folders: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path) -> None:
    write_images(tmp_path, [f"{folder}/{label}/{number}.png" for folder in folders for label in "ab" for number in "12"])
    data = load_dataset(tmp_path)
    assert data.class_names == ("a", "b")
    for folder, part in zip(folders, parts, strict=True):
        assert [keys(data)[index] for index in data.split_indices(part)] == [  # type: ignore[arg-type]
            f"{folder}/a/1.png",
            f"{folder}/a/2.png",
            f"{folder}/b/1.png",
            f"{folder}/b/2.png",
        ]


def test_loose_images_have_no_labels(tmp_path: Path) -> None:
    write_images(tmp_path, ["2.png", "1.png"])
    data = load_dataset(tmp_path)
    assert (data.kind, keys(data), data.class_names) == ("unlabeled", ["1.png", "2.png"], ())
    assert len(data.labeled()) == 0
    with pytest.raises(InputError, match="has no labels, so nothing says which images are alike"):
        data.require_labels()


def test_loose_images_beside_folders_are_kept_without_label(tmp_path: Path) -> None:
    write_images(tmp_path, ["0.png", "a/1.png", "b/2.png"])
    assert classes(load_dataset(tmp_path)) == [None, "a", "b"]
    write_images(tmp_path / "parts", ["0.png", "train/1.png", "train/a/2.png", "test/a/3.png"])
    data = load_dataset(tmp_path / "parts")
    assert keys(data) == ["0.png", "train/1.png", "test/a/3.png", "train/a/2.png"]
    assert classes(data) == [None, None, "a", "a"]
    assert (len(data.split_indices("train")), len(data.split_indices("query"))) == (1, 1)


def test_hidden_files_and_files_of_other_kinds_are_counted_and_no_problem(tmp_path: Path) -> None:
    write_images(tmp_path, ["a/1.png", "a/.2.png", ".thumbnails/3.png", "a/.cache/4.png"])
    (tmp_path / "a" / "1.txt").write_text("a caption")
    data = load_dataset(tmp_path, strict=True)
    assert keys(data) == ["a/1.png"]
    assert data.skipped.sentences() == [
        "hidden file or folder: 3 (.thumbnails; a/.2.png; a/.cache)",
        "file of another kind: 1 (a/1.txt)",
    ]


def test_parts_beside_other_folders_are_not_guessed_at(tmp_path: Path) -> None:
    write_images(tmp_path, ["train/a/1.png", "test/a/2.png", "figures/3.png"])
    with pytest.raises(InputError, match="holds test, train with classes inside, and beside it figures; move that away"):
        load_dataset(tmp_path)
    write_images(tmp_path / "music", ["query/1.png", "figures/3.png"])  # a class may well be called query
    assert load_dataset(tmp_path / "music").class_names == ("figures", "query")


def test_a_class_without_images_is_counted(tmp_path: Path) -> None:
    write_images(tmp_path, ["a/1.png", "b/2.png"])
    (tmp_path / "empty").mkdir()
    data = load_dataset(tmp_path)
    assert data.class_names == ("a", "b")
    assert data.skipped.sentences() == ["class without images: 1 (empty)"]
    with pytest.raises(InputError, match="as asked: class without images: empty"):
        load_dataset(tmp_path, strict=True)


def test_links_inside_work_and_links_outside_do_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_images(tmp_path, ["root/a/1.png", "elsewhere/secret.png"])
    (root / "a" / "2.png").symlink_to(root / "a" / "1.png")
    (root / "a" / "3.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    (root / "a" / "4.png").symlink_to("../../elsewhere/secret.png")
    (root / "a" / "5.png").symlink_to("nothing.png")
    (root / "a" / "6.png").symlink_to("6.png")
    (root / "a" / "loop").symlink_to(root)
    (root / "b").symlink_to(tmp_path / "elsewhere")
    data = load_dataset(root)
    assert keys(data) == ["a/1.png", "a/2.png"]
    assert data.skipped.counts == {"outside the folder": 2, "link to a folder, not entered": 2, "link to nothing": 2}
    assert sorted(data.skipped.examples["link to a folder, not entered"]) == ["a/loop", "b"]


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    write_images(tmp_path, ["root/a/1.png"])
    (tmp_path / "link").symlink_to(tmp_path / "root")
    assert keys(load_dataset(tmp_path / "link")) == ["a/1.png"]


def test_a_folder_of_links_says_that_links_are_not_followed(tmp_path: Path) -> None:
    write_images(tmp_path, ["elsewhere/cats/1.png"])
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cats").symlink_to(tmp_path / "elsewhere" / "cats")
    (tmp_path / "root" / "1.png").symlink_to(tmp_path / "elsewhere" / "cats" / "1.png")
    with pytest.raises(InputError, match="holds only links, which are not followed"):
        load_dataset(tmp_path / "root")


def test_special_files_do_not_hang(tmp_path: Path) -> None:
    write_images(tmp_path, ["a/1.png"])
    os.mkfifo(tmp_path / "a" / "pipe.png")
    data = load_dataset(tmp_path)
    assert keys(data) == ["a/1.png"]
    assert data.skipped.sentences() == ["image name of something that is not a file: 1 (a/pipe.png)"]


def test_an_empty_folder_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no images; class folders \(cats/1.jpg\)"):
        load_dataset(tmp_path)
    (tmp_path / "1.raw").write_bytes(b"x")
    (tmp_path / ".1.png").write_bytes(b"x")
    with pytest.raises(InputError, match=r"no images \(hidden file or folder: 1, file of another kind: 1\); class"):
        load_dataset(tmp_path)


def test_a_folder_that_cannot_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, ["a/1.png", "b/2.png"])
    real = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match=r"b cannot be read: Permission denied\."):
        load_dataset(tmp_path)


def test_a_folder_is_not_mistaken_for_a_published_set_of_its_name(tmp_path: Path) -> None:
    write_images(tmp_path / "nuswide", ["a/1.png", "b/2.png"])
    data = load_dataset(tmp_path / "nuswide")
    assert data.name == "folder nuswide"
    assert default_protocol(data) == "holdout"
