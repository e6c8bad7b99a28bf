"""Datasets of torch and of Hugging Face as data sets, and data sets as datasets of torch."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as MapStyleDataset

from helpers.images import save_image
from proxyhash.data import Dataset, SkippedItems, TorchDataset, from_hugging_face, from_torch, load_dataset, make_split
from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.images import SESSION, Subset
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import Transform, draw_augment_params, get_transform
from proxyhash.models import extraction
from proxyhash.models.backbones import create_backbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.training.train import train_hashers
from proxyhash.utils.errors import InputError

datasets = pytest.importorskip("datasets")

SMALL = get_transform("small", 8)


class Squares(MapStyleDataset[Any]):
    """Squares whose color is their class; item 5 raises if `broken`. `reads` counts what was read."""

    def __init__(self, count: int = 40, broken: bool = False) -> None:
        self.count, self.broken, self.reads = count, broken, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        if self.broken and index == 5:
            raise OSError("disk on fire")
        random = np.random.default_rng(index)
        pixels = random.integers(0, 30, (12, 12, 3)) + 50 * (index % 4)
        return Image.fromarray(pixels.astype(np.uint8)), index % 4


class Targets(Squares):
    """As torchvision's datasets: `targets` and `classes`."""

    def __init__(self) -> None:
        super().__init__()
        self.targets, self.classes = [index % 4 for index in range(40)], ["a", "b", "c", "d"]


def read_all(dataset: Dataset) -> Any:
    return np.stack([dataset.images.read(index) for index in range(len(dataset))])


def test_a_torch_dataset_is_read_lazily() -> None:
    squares = Targets()
    dataset = from_torch(squares)
    assert squares.reads == 1  # labels are those of `targets`, once the first item agrees
    assert (dataset.name, dataset.kind, dataset.class_names, dataset.labels_of(6)) == (
        "Targets",
        "classes",
        tuple("abcd"),
        ("c",),
    )
    np.testing.assert_array_equal(dataset.images.read(7), np.asarray(squares[7][0]))
    assert dataset.images.read_square(7, 6, "squash").shape == (6, 6, 3)


def test_labels_are_read_from_the_items_where_targets_are_others() -> None:
    squares = Targets()
    squares.targets = [3] * 40
    heard: list[float] = []
    dataset = from_torch(squares, progress=lambda _, share: heard.append(share))
    assert dataset.require_classes().values.tolist() == [index % 4 for index in range(40)]
    assert heard[-1] == 1


def test_tensors_and_vectors_of_tags() -> None:
    images = torch.randint(0, 256, (6, 3, 9, 9), dtype=torch.uint8)
    tags = torch.eye(6, 4)
    dataset = from_torch(TensorDataset(images, tags), ["sky", "sea", "sun", "tree"])
    np.testing.assert_array_equal(read_all(dataset), images.permute(0, 2, 3, 1).numpy())
    assert dataset.labels_of(2) == ("sun",)
    assert dataset.require_tags().labeled().tolist() == [0, 1, 2, 3]


def test_numbers_without_names_are_names() -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    dataset = from_torch([(pixels, 10**12), (pixels, -1), (pixels, np.int32(7)), (pixels, torch.tensor(7)), (pixels, None)])
    assert dataset.class_names == ("7", "1000000000000")
    assert dataset.require_classes().values.tolist() == [1, -1, 0, 0, -1]
    assert from_torch([(pixels, None)]).labels is None


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "list has no items"),
        (42, "Data of the type int have no length and no indices; give a map-style dataset, or a folder"),
        ([np.zeros((4, 4, 3), np.uint8)], r"is a ndarray, and an item is a pair \(image, label\)"),
        ([(torch.full((3, 4, 4), -2.0), 0)], "leave the normalization out"),
        ([(np.zeros((4, 4), np.uint8), 0.5)], r"are float64 \(\), and not numbers of classes"),
        ([(np.zeros((4, 4), np.uint8), [0, 2])], r"and not numbers of classes or vectors of 0 and 1"),
        ([(np.zeros((4, 4), np.uint8), 0), (np.zeros((4, 4), np.uint8), [0, 1])], "have several shapes"),
    ],
)
def test_what_is_no_labeled_image_is_refused(items: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(items)


def test_an_iterable_dataset_is_refused() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(())

    with pytest.raises(InputError, match="no length"):
        load_dataset(Stream())


def test_an_item_that_raises_is_an_unreadable_image() -> None:
    dataset = from_torch(Squares(broken=True))
    assert dataset.require_classes().values[5] == -1
    skipped = SkippedItems()
    (batch,) = load_batches(dataset.images, [np.arange(10)], SMALL, skipped=skipped)
    assert batch.indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert skipped.sentences() == ["unreadable image: 1 (Squares-000005 cannot be read (disk on fire))"]
    with pytest.raises(UnreadableImageError, match="Squares-000005 cannot be read"):
        from_torch(Squares(broken=True), strict=True)


def test_it_trains_without_the_item_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: False)  # an export takes seconds
    dataset = load_dataset(Squares(60, broken=True))
    optim = OptimConfig.frozen(epochs=2, batch_size=8, hidden_dim=8)
    config = TrainConfig(bits=(8,), backbone="convnet", image_size=8, optim=optim, device="cpu")
    (hasher,) = train_hashers(dataset, make_split(dataset), config)
    assert hasher.encode(Subset(dataset.images, np.arange(5))).shape == (5, 1)
    assert dataset.skipped.counts["unreadable image"] == 1


def test_features_are_cached_by_a_fingerprint_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path))
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: False)
    backbone = create_backbone("convnet", pretrained=False).eval()
    folder = cached_features(from_torch(Squares()), backbone, SMALL).folder
    assert tmp_path not in folder.parents
    assert from_torch(Squares()).images.fingerprint() != from_torch(Squares()).images.fingerprint()
    known = [from_torch(Squares(), fingerprint="1") for _ in range(2)]
    kept = cached_features(known[0], backbone, SMALL).folder
    assert tmp_path in kept.parents
    read = known[1].images.dataset.reads  # type: ignore[attr-defined]
    assert cached_features(known[1], backbone, SMALL).folder == kept
    assert known[1].images.dataset.reads == read  # type: ignore[attr-defined]
    some = from_torch(Squares()).subset(np.arange(3))
    assert some.images.fingerprint().startswith(SESSION)
    again = cached_features(some, backbone, SMALL)
    assert cached_features(some, backbone, SMALL).folder == again.folder  # within the process, they are reused


def make_table(label: Any, values: list[Any], images: list[Any] | None = None) -> Any:
    pictures = images or [Squares()[index][0] for index in range(len(values))]
    features = datasets.Features({"picture": datasets.Image(), "kind": label})
    return datasets.Dataset.from_dict({"picture": pictures, "kind": values}, features=features)


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        (lambda: datasets.ClassLabel(names=["cat", "dog"]), [1, 0, None], [("dog",), ("cat",), ()]),
        (lambda: datasets.Value("int64"), [7, 3, 7], [("7",), ("3",), ("7",)]),
        (lambda: datasets.Value("string"), ["dog", None, "cat"], [("dog",), (), ("cat",)]),
        (
            lambda: datasets.List(datasets.ClassLabel(names=["sky", "sea"])),
            [[0, 1], [], [1]],
            [("sky", "sea"), (), ("sea",)],
        ),
        (lambda: datasets.List(datasets.Value("string")), [["sea", "sky"], None, ["sky"]], [("sea", "sky"), (), ("sky",)]),
        (lambda: datasets.List(datasets.Value("int8")), [[0, 1], [1, 1], [0, 0]], [("1",), ("0", "1"), ()]),
    ],
    ids=["ClassLabel", "integers", "strings", "lists of classes", "lists of strings", "vectors"],
)
def test_labels_of_hugging_face(feature: Any, values: list[Any], expected: list[Any]) -> None:
    dataset = from_hugging_face(make_table(feature(), values), "picture", "kind")
    assert [dataset.labels_of(index) for index in range(3)] == expected


def test_images_of_hugging_face_are_decoded_as_files_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (40, 60, 3), dtype=np.uint8) for _ in range(3)]
    for number, each in enumerate(pixels):
        save_image(each, tmp_path / f"{number}.png")
    for images in (pixels, [Image.fromarray(each) for each in pixels], [str(tmp_path / f"{n}.png") for n in range(3)]):
        dataset = from_hugging_face(
            make_table(datasets.Value("int64"), [0, 1, 2], images).with_format("torch"), "picture", "kind"
        )
        np.testing.assert_array_equal(read_all(dataset), np.stack(pixels))


def test_unreadable_images_of_hugging_face_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n then nothing")
    images = [Squares()[0][0], None, str(tmp_path / "damaged.png"), {"bytes": b"text", "path": None}, Squares()[1][0]]
    dataset = from_hugging_face(make_table(datasets.Value("int64"), list(range(5)), images), "picture", "kind")
    skipped = SkippedItems()
    (batch,) = load_batches(dataset.images, [np.arange(5)], SMALL, skipped=skipped)
    assert batch.indices.tolist() == [0, 4]
    assert skipped.counts["unreadable image"] == 3
    assert "hugging-face-000001 has no image" in skipped.examples["unreadable image"]


def test_the_fingerprint_of_hugging_face_follows_the_content() -> None:
    table = make_table(datasets.Value("int64"), [0, 1, 2])
    found = [
        from_hugging_face(each, "picture", "kind").images.fingerprint() for each in (table, table, table.select([0, 2]))
    ]
    assert found[0] == found[1] != found[2]
    assert not found[0].startswith(SESSION)


def test_columns_are_checked() -> None:
    table = make_table(datasets.Value("float32"), [0.5, 1, 2])
    mistakes: dict[str, Any] = {
        r"has no column 'image', but picture, kind; name them: from_hugging_face\(": lambda: load_dataset(table),
        "has no column 'kinds', but": lambda: from_hugging_face(table, "picture", "kinds"),
        r"'kind' holds no images; files and bytes become images by dataset.cast_column": lambda: from_hugging_face(
            table, "kind", "kind"
        ),
        r"'kind' holds Value\(.*, and labels are classes": lambda: from_hugging_face(table, "picture", "kind"),
        r"has the splits train, test; give one of them, dataset\['train'\]": lambda: load_dataset(
            datasets.DatasetDict({"train": table, "test": table})
        ),
        "streaming=False": lambda: load_dataset(table.to_iterable_dataset()),
    }
    mistakes["has no column 'label', but"] = lambda: from_hugging_face(table, "picture")
    for message, work in mistakes.items():
        with pytest.raises(InputError, match=message):
            work()
    assert from_hugging_face(table, "picture", None).labels is None


def test_load_dataset_takes_data_sets_and_tables() -> None:
    digits = load_dataset("digits")
    assert load_dataset(digits) is digits
    table = make_table(datasets.ClassLabel(names=["cat", "dog"]), [1, 0, 1]).rename_columns(
        {"picture": "image", "kind": "label"}
    )
    assert load_dataset(table).labels_of(0) == ("dog",)


@pytest.mark.parametrize("transform", [SMALL, get_transform("photo", 16), get_transform("paper-256")], ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_our_images_for_torch_are_those_of_our_loader(kind: str, transform: Transform, photos: Path) -> None:
    dataset = load_dataset("digits").subset(np.arange(8)) if kind == "memory" else load_dataset(photos)
    indices = np.array([7, 2, 4])
    (expected,) = load_batches(dataset.images, [indices], transform)
    view = TorchDataset(dataset, indices, transform)
    torch.testing.assert_close(
        torch.stack([view[position][0] for position in range(3)]), torch.from_numpy(expected.images).contiguous()
    )
    assert [view[position][1] for position in range(3)] == dataset.require_classes().values[indices].tolist()
    draws = draw_augment_params(len(dataset), 0, 0)
    (expected,) = load_batches(dataset.images, [indices], view.transform, augment_params=draws)
    augmented = TorchDataset(dataset, indices, transform, augment=True)
    for position, index in enumerate(indices):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "rand", lambda *_, index=index: torch.from_numpy(draws[[index]]))
            torch.testing.assert_close(augmented[position][0], torch.from_numpy(expected.images)[position].contiguous())


def test_it_works_in_a_data_loader_with_workers() -> None:
    dataset = from_torch(Squares(16))
    view = TorchDataset(dataset, None, get_transform("photo", 8), augment=True)
    images, labels = next(iter(DataLoader(view, batch_size=16, num_workers=2)))
    assert (images.shape, images.dtype, labels.tolist()) == ((16, 3, 8, 8), torch.float32, [0, 1, 2, 3] * 4)
    assert 100 < images[3].mean() < 255  # not normalized
    copied = pickle.loads(pickle.dumps(view))  # as workers that are spawned get it
    assert copied[3][1] == 3


def test_tags_and_images_without_labels_in_a_data_loader() -> None:
    pixels = np.zeros((4, 4, 3), np.uint8)
    tags = TorchDataset(from_torch([(pixels, [0, 1, 1]), (pixels, [1, 0, 0])]), None, SMALL)
    assert next(iter(DataLoader(tags, batch_size=2)))[1].tolist() == [[0, 1, 1], [1, 0, 0]]
    assert TorchDataset(from_torch([(pixels, None)]), None, SMALL)[0][1] == -1
    with pytest.raises(IndexError):
        TorchDataset(from_torch([(pixels, 0)]), [1], SMALL)


def test_without_the_package_one_sentence_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'run pip install "proxyhash\[datasets\]".'):
        from_hugging_face(object())
