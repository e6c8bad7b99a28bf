"""The published data sets, as miniatures in their official layouts."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.datasets import python2_pickle, write_cifar, write_ilsvrc, write_nuswide
from helpers.images import write_images
from proxyhash.data import load_dataset
from proxyhash.data.catalog import CIFAR10, CIFAR100, ILSVRC2012, NUSWIDE, DatasetInfo
from proxyhash.data.readers.nuswide import load_nuswide
from proxyhash.data.readers.published import load_cifar, load_digits, load_ilsvrc
from proxyhash.data.safe_pickle import load_pickle
from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize("record", [CIFAR10, CIFAR100], ids=lambda record: record.name)
def test_cifar_is_read_from_its_official_files(record: DatasetInfo, tmp_path: Path) -> None:
    folder = tmp_path / record.folder
    data = load_cifar(write_cifar(folder, record), folder)
    trained = 100 if record is CIFAR10 else 20
    assert (data.name, data.kind, len(data)) == (record.name, "classes", trained + 20)
    np.testing.assert_array_equal(data.split_indices("train"), np.arange(trained))
    np.testing.assert_array_equal(data.split_indices("query"), np.arange(trained, trained + 20))
    assert len(data.class_names) == record.num_classes
    np.testing.assert_array_equal(data.require_labels().values[-20:], np.arange(20) % record.num_classes)

    raw = load_pickle(folder / ("test_batch" if record is CIFAR10 else "test"))["data"][7]
    found = data.images.read(trained + 7)
    assert found[3, 5].tolist() == [raw[3 * 32 + 5], raw[1024 + 3 * 32 + 5], raw[2048 + 3 * 32 + 5]]
    assert data.images.key(trained + 7) == f"{record.name}-{trained + 7:06d}"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"data": np.zeros((2, 5), np.uint8), "labels": [0, 1]}, "holds no array `data` of rows of 3,072 bytes"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "hold no fine_labels or labels"),
    ],
)
def test_files_with_other_contents_are_refused(table: dict[str, object], sentence: str, tmp_path: Path) -> None:
    folder = tmp_path / CIFAR100.folder
    record = write_cifar(folder, CIFAR100)
    (folder / "test").write_bytes(python2_pickle(table))
    files = tuple((name, checksum(folder / name, "md5")) for name, _ in record.files)
    with pytest.raises(InputError, match=sentence):
        load_cifar(replace(record, files=files), folder)


def test_digits_need_no_download() -> None:
    data = load_digits()
    assert (len(data), data.kind, data.class_names) == (1797, "classes", tuple("0123456789"))
    first = data.images.read(0)
    assert first.shape == (8, 8, 3)
    np.testing.assert_array_equal(first[0, :, 0], [0, 0, 80, 207, 143, 16, 0, 0])  # 0 0 5 13 9 1 0 0 of 16


def test_ilsvrc_is_read_from_class_folders(tmp_path: Path) -> None:
    write_ilsvrc(tmp_path / "ilsvrc2012")
    write_images(tmp_path / "ilsvrc2012", ["test/unlabeled.JPEG", "devkit/figure.png"])
    data = load_dataset("ilsvrc2012", data_dir=tmp_path)
    assert (data.name, len(data), len(data.class_names)) == ("ilsvrc2012", 64, 8)
    assert (len(data.split_indices("train")), len(data.split_indices("query"))) == (48, 16)
    assert data.class_names[0] == "n01440764"
    assert data.images.key(0) == "train/n01440764/n01440764_0.JPEG"


def test_other_ilsvrc_layouts_are_explained(tmp_path: Path) -> None:
    folder = tmp_path / "ilsvrc2012"
    write_ilsvrc(folder)
    shutil.move(folder / "val" / "n01440764", folder / "train" / "n09999999")
    with pytest.raises(InputError, match="2 classes in only one of train and val, the first is n01440764"):
        load_ilsvrc(ILSVRC2012, folder)
    shutil.rmtree(folder / "val")
    write_images(folder / "val", ["ILSVRC2012_val_00000001.JPEG"])
    with pytest.raises(InputError, match="has no class folders; sort its images into val/n01440764/"):
        load_ilsvrc(ILSVRC2012, folder)
    shutil.rmtree(folder / "val")
    with pytest.raises(InputError, match="has no folder val; it must hold train/n01440764"):
        load_ilsvrc(ILSVRC2012, folder)
    (folder / "val").symlink_to(folder / "train")
    with pytest.raises(InputError, match="val is a link, and these are not followed"):
        load_ilsvrc(ILSVRC2012, folder)


@pytest.mark.parametrize("flat", [False, True])
def test_nuswide_is_read_from_its_lists(flat: bool, tmp_path: Path) -> None:
    held = write_nuswide(tmp_path / "nus-wide", flat=flat)
    data = load_dataset("nuswide", data_dir=tmp_path)
    assert (data.name, data.kind, len(data.class_names)) == ("nuswide", "tags", 21)
    frequent = np.sort(np.argsort(-held.sum(0), kind="stable")[:21])
    assert data.class_names == tuple(f"tag{tag:02d}" for tag in frequent)
    kept = np.flatnonzero(held[:, frequent].any(1))
    assert len(data) == len(kept) < 60
    np.testing.assert_array_equal(data.require_tags().values, held[kept][:, frequent])
    name = f"{kept[5]:04d}_{7 * kept[5]}.jpg"
    assert data.images.key(5) == (name if flat else f"topic{kept[5] % 3}/{name}")
    assert data.images.read(5).shape == (12, 12, 3)
    assert not data.skipped


def test_missing_images_of_nuswide_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "nus-wide"
    write_nuswide(folder)
    shutil.rmtree(folder / "Flickr" / "topic0")  # the first of the list: the others are still found in their folders
    data = load_nuswide(NUSWIDE, folder)
    assert 0 < data.skipped.counts["row whose file is missing"] <= 20
    assert {data.images.key(index).split("/")[0] for index in range(len(data))} == {"topic1", "topic2"}
    with pytest.raises(InputError, match=r"as asked: row whose file is missing: topic0/0000_0\.jpg"):
        load_nuswide(NUSWIDE, folder, strict=True)
    shutil.rmtree(folder / "Flickr")
    (folder / "Flickr").mkdir()
    with pytest.raises(InputError, match="holds none of the images in the list"):
        load_nuswide(NUSWIDE, folder)


def test_a_list_cannot_lead_out_of_nuswide(tmp_path: Path) -> None:
    folder = tmp_path / "nus-wide"
    write_nuswide(folder)
    write_images(tmp_path, ["secret.jpg"])
    lines = (folder / "ImageList" / "Imagelist.txt").read_text().splitlines()
    lines[0], lines[1] = "..\\..\\secret.jpg", str(tmp_path / "secret.jpg")
    (folder / "ImageList" / "Imagelist.txt").write_text("\n".join(lines))
    data = load_nuswide(NUSWIDE, folder)
    assert data.skipped.counts == {"outside the folder": 2}


@pytest.mark.parametrize(
    ("path", "content", "sentence"),
    [
        ("Groundtruth/AllLabels/Labels_tag03.txt", b"1\n0\n", "must hold 60 lines of 0 or 1"),
        ("Groundtruth/AllLabels/Labels_tag03.txt", b"2\n" * 60, "must hold 60 lines of 0 or 1"),
        ("ImageList/Imagelist.txt", b"\xff\xfe\n", "is not UTF-8 text"),
        (
            "ImageList/Imagelist.txt",
            None,
            "has no ImageList/Imagelist.txt; it must hold ImageList/",
        ),
        ("Groundtruth/AllLabels", None, "has no Groundtruth/AllLabels"),
        ("Flickr", None, "has no Flickr"),
    ],
)
def test_damaged_lists_of_nuswide_are_named(path: str, content: bytes | None, sentence: str, tmp_path: Path) -> None:
    folder = tmp_path / "nus-wide"
    write_nuswide(folder)
    target = folder / path
    if content is not None:
        target.write_bytes(content)
    elif target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(InputError, match=sentence):
        load_nuswide(NUSWIDE, folder)
