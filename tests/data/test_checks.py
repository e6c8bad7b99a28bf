import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.datasets import labeled_dataset, tagged_dataset, write_ilsvrc, write_nuswide
from helpers.images import smooth_image, write_images
from proxyhash.data import ArrayImages, ClassLabels, Dataset, load_dataset, make_split
from proxyhash.data.checks import DatasetReport, Finding, check_dataset
from proxyhash.data.checks.pixels import duplicate_groups, pixel_digests, readable_images
from proxyhash.data.skipped import SkippedItems
from proxyhash.utils.errors import InputError


def pictures(count: int, name: str = "photos", classes: int = 2, repeated: dict[int, int] | None = None) -> Dataset:
    """A data set of different pictures in memory, but for those that are `repeated`."""
    pixels = np.stack([smooth_image((repeated or {}).get(seed, seed)) for seed in range(count)])
    return replace(labeled_dataset(name, np.arange(count) % classes), images=ArrayImages(pixels))


def finding(report: DatasetReport, words: str) -> Finding:
    found = [finding for finding in report.findings if words in finding.message]
    assert len(found) == 1, (words, report.findings)
    return found[0]


def levels(report: DatasetReport) -> set[str]:
    return {finding.level for finding in report.findings}


def test_a_good_data_set_is_only_praised() -> None:
    data = pictures(40)
    report = check_dataset(data, make_split(data))
    assert levels(report) == {"ok"}
    assert report.worst_level == "ok"
    assert report.summary == {
        "name": "photos",
        "kind": "classes",
        "images": 40,
        "readable": 40,
        "classes": 2,
        "without label": 0,
        "splits": {},
    }
    assert finding(report, "20 to 20 images a class, 20 in the middle")
    assert report.protocol is not None
    assert report.protocol["protocol"] == "holdout"


def test_unreadable_images_are_named_and_not_called_alike(tmp_path: Path) -> None:
    write_images(tmp_path, [f"{label}/{number}.png" for label in "ab" for number in range(6)])
    (tmp_path / "a" / "0.png").write_bytes(b"no image")
    (tmp_path / "b" / "3.png").write_bytes(b"")
    (tmp_path / "b" / "4.png").write_bytes((tmp_path / "b" / "4.png").read_bytes()[:70])
    data = load_dataset(tmp_path)
    for _ in range(2):  # a second check does not count them again
        report = check_dataset(data, make_split(data))
        bad = finding(report, "unreadable image, skipped")
        assert (bad.level, bad.count) == ("warning", 2)
        assert "a/0.png cannot be decoded as an image (its format is not recognized)" in bad.examples[0]
        assert finding(report, "empty file, skipped").examples == ("b/3.png is empty",)
        assert report.summary["readable"] == 9
        assert finding(report, "no picture occurs twice")
    with pytest.raises(InputError, match=r"as asked: unreadable image: .*a/0\.png"):
        check_dataset(load_dataset(tmp_path, strict=True))


def test_leaks_are_errors_in_a_folder_and_warnings_in_a_published_set() -> None:
    for name, level in (("photos", "error"), ("digits", "warning")):
        data = pictures(60, name)
        split = make_split(data)
        query, twin = int(split.query[0]), int(split.train[0])
        data = pictures(60, name, repeated={query: twin})
        report = check_dataset(data, make_split(data))
        for where in ("the database", "training"):
            leak = finding(report, f"also in {where} (a leak)")
            assert (leak.level, leak.count) == (level, 1)
            assert leak.examples == (f"image-{query:06d} = image-{twin:06d}",)
        assert report.worst_level == level


def test_pictures_that_occur_twice_in_training_are_a_note_and_with_two_labels_a_warning() -> None:
    split = make_split(pictures(60))
    one, two, other = (int(index) for index in (split.train[0], split.train[2], split.train[1]))
    assert (one - two) % 2 == 0
    assert (one - other) % 2 == 1
    data = pictures(60, repeated={two: one})
    report = check_dataset(data, make_split(data))
    assert (report.worst_level, finding(report, "occur again").count) == ("note", 1)
    data = pictures(60, repeated={two: one, other: one})
    report = check_dataset(data, make_split(data))
    assert finding(report, "occur again").count == 2
    disputed = finding(report, "occur with different labels")
    assert (disputed.level, disputed.count) == ("warning", 1)


def test_the_same_picture_in_another_file_is_found(tmp_path: Path) -> None:
    write_images(
        tmp_path, [f"{part}/{label}/{number}.png" for part in ("train", "test") for label in "ab" for number in "123"]
    )
    shutil.copy(tmp_path / "train" / "a" / "1.png", tmp_path / "test" / "a" / "copy.png")
    data = load_dataset(tmp_path)
    report = check_dataset(data, make_split(data))
    assert finding(report, "also in training").examples == ("test/a/copy.png = train/a/1.png",)
    assert report.worst_level == "error"


def test_small_classes_are_named() -> None:
    data = pictures(20, classes=2)
    labels = np.array([0] * 10 + [1] * 6 + [2] * 3 + [3])
    data = replace(data, labels=ClassLabels(labels, ("many", "enough", "few", "one", "none")))
    report = check_dataset(data)
    assert finding(report, "classes with one image").examples == ("one",)
    assert finding(report, "classes with fewer than 5").examples == ("few (3)",)
    assert finding(report, "classes without images").examples == ("none",)
    tags = check_dataset(tagged_dataset("photos", 40, 4))
    assert finding(tags, "images a tag")


def test_images_without_labels_can_be_checked(tmp_path: Path) -> None:
    write_images(tmp_path, ["1.png", "2.png"])
    report = check_dataset(load_dataset(tmp_path))
    assert report.worst_level == "note"
    assert report.protocol is None
    assert finding(report, "no labels: it can be indexed")


def test_found_queries_are_counted() -> None:
    labels = np.array([0, 1] * 10 + [2, 2])
    data = replace(labeled_dataset("photos", labels, queries=2), images=pictures(22).images)
    found = finding(check_dataset(data, make_split(data)), "nothing relevant in the database")
    assert (found.level, found.count, found.examples) == ("warning", 2, ("image-000020", "image-000021"))
    tags = tagged_dataset("photos", 22, 3)
    values = tags.require_tags().values
    values[:, 2] = False
    values[21] = [False, False, True]
    tags = replace(tags, splits=np.array([0] * 20 + [1] * 2, np.int8), images=pictures(22).images)
    assert finding(check_dataset(tags, make_split(tags)), "nothing relevant").count == 1


def test_a_query_inside_the_database_is_an_error() -> None:
    data = pictures(40)
    split = make_split(data)
    wrong = replace(split, query=np.append(split.query, split.database[:3]))
    assert finding(check_dataset(data, wrong), "themselves in the database").count == 3


def test_a_backbone_that_knows_the_unseen_classes(tmp_path: Path) -> None:
    write_ilsvrc(tmp_path / "ilsvrc2012")
    data = load_dataset("ilsvrc2012", data_dir=tmp_path)
    split = make_split(data, "transfer", validation="images")
    report = check_dataset(data, split, pretrained_on="ILSVRC-2012")
    known = finding(report, "the backbone was pretrained on ILSVRC-2012, which holds these very unseen classes")
    assert (known.level, known.count) == ("error", 2)
    assert finding(report, "none of the 2 unseen classes occurs in training").level == "ok"
    assert check_dataset(data, split, pretrained_on="Places").worst_level != "error"
    assert check_dataset(data, make_split(data), pretrained_on="ILSVRC-2012").worst_level != "error"

    cifar = pictures(80, "cifar100", classes=8)
    report = check_dataset(cifar, make_split(cifar, "transfer"), pretrained_on="ILSVRC-2012")
    assert finding(report, "which holds many of these unseen classes").level == "warning"
    split = make_split(cifar, "transfer")
    seen = replace(split, classes=np.arange(8))
    assert finding(check_dataset(cifar, seen), "both trained and called unseen").count == 2


def test_a_published_set_in_miniature_passes(tmp_path: Path) -> None:
    write_nuswide(tmp_path / "nus-wide", images=400)
    data = load_dataset("nuswide", data_dir=tmp_path)
    small = make_split(data, "multi-label")
    report = check_dataset(data, small, threads=1)
    assert report.worst_level in {"ok", "note", "warning"}
    assert report.as_dict()["worst_level"] == report.worst_level


def test_digests_tell_pictures_apart_by_pixels_and_shape() -> None:
    pixels = np.zeros((4, 2, 2, 3), np.uint8)
    pixels[1, 0, 0, 0] = 1
    heard: list[float] = []
    found = pixel_digests(ArrayImages(pixels), SkippedItems(), 2, lambda _, fraction: heard.append(fraction))
    groups = duplicate_groups(found)
    assert groups[0] == groups[2] == groups[3] != groups[1]
    assert readable_images(found).all()
    assert heard == [0.0, 1.0]
    with pytest.raises(InputError, match="The number of threads must be at least 1, not -1"):
        pixel_digests(ArrayImages(pixels), SkippedItems(), -1)
