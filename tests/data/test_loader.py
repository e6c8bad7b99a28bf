import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.datasets import labeled_dataset
from helpers.images import smooth_image, write_images
from proxyhash.data.images import ArrayImages, FileImages, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform, draw_augment_params, get_transform
from proxyhash.utils.errors import InputError

PHOTO = get_transform("photo", 24)
BATCHES = [np.array([5, 0, 3]), np.array([1]), np.array([2, 4, 11, 10]), np.array([9, 8, 7, 6])]


@pytest.fixture
def files(tmp_path: Path) -> FileImages:
    names = [f"{number}.png" for number in range(12)]
    write_images(tmp_path, names)
    return FileImages(tmp_path, names)


@pytest.mark.parametrize("augmented", [False, True])
def test_batches_come_in_order_on_any_number_of_workers(files: FileImages, augmented: bool) -> None:
    draws = draw_augment_params(12, 0, 0) if augmented else None
    one, two = (list(load_batches(files, BATCHES, PHOTO, augment_params=draws, workers=workers)) for workers in (1, 2))
    assert [batch.indices.tolist() for batch in one] == [batch.tolist() for batch in BATCHES]
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left.indices, right.indices)
        np.testing.assert_array_equal(left.images, right.images)
        assert left.images.shape == (len(left.indices), 3, 24, 24)


def test_each_image_is_its_own_file_s(files: FileImages) -> None:
    for batch in load_batches(files, BATCHES, PHOTO, workers=2):
        for index, image in zip(batch.indices, batch.images, strict=True):
            center = smooth_image(int(index)).astype(np.float64)  # 12 x 12, of which 10.5 x 10.5 are enlarged to 24 x 24
            places = np.clip(0.75 + (np.arange(24) + 0.5) * 10.5 / 24 - 0.5, 0, 11)
            first = np.minimum(places.astype(int), 10)
            share = (places - first)[:, None]
            rows = center[first] * (1 - share[..., None]) + center[first + 1] * share[..., None]
            expected = rows[:, first] * (1 - share) + rows[:, first + 1] * share
            np.testing.assert_allclose(image.transpose(1, 2, 0), expected, atol=0.01)


def test_parts_of_files_are_what_parts_of_memory_are(tmp_path: Path) -> None:
    pixels = np.stack([smooth_image(seed, 20, 20) for seed in range(8)])
    names = [f"{seed}.png" for seed in range(8)]
    for name, image in zip(names, pixels, strict=True):
        Image.fromarray(image).save(tmp_path / name)
    draws = draw_augment_params(8, 0, 0)
    (memory,) = load_batches(ArrayImages(pixels), [np.arange(8)], PHOTO, augment_params=draws)
    (read,) = load_batches(FileImages(tmp_path, names), [np.arange(8)], PHOTO, augment_params=draws)
    np.testing.assert_allclose(read.images, memory.images, atol=0.01, rtol=0)


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_parts_of_large_pictures_are_averaged_and_not_picked(name: str, tmp_path: Path) -> None:
    """A fine chequerboard is gray from afar; whoever picks single pixels sees black and white."""
    board = (np.indices((400, 600)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).convert("RGB").save(tmp_path / name)
    (batch,) = load_batches(FileImages(tmp_path, [name]), [np.array([0])], PHOTO)
    assert np.abs(batch.images - 127.5).max() < 3


def test_squares_of_files_pass_through_the_other_transforms(files: FileImages) -> None:
    window = Transform("mini", "", 10, 12, crop="random_crop")
    draws = draw_augment_params(12, 0, 0)
    for batch in load_batches(files, BATCHES, window, augment_params=draws):
        squares = torch.from_numpy(np.stack([files.read_square(int(index), 12, "squash") for index in batch.indices]))
        expected = window.augment(squares, torch.from_numpy(draws[batch.indices]))
        np.testing.assert_array_equal(batch.images, expected.numpy())


def test_augmentation_depends_on_the_image_and_not_on_its_batch(files: FileImages) -> None:
    draws = draw_augment_params(12, 0, 0)
    found = {
        size: np.concatenate(
            [batch.images for batch in load_batches(files, np.arange(12).reshape(-1, size), PHOTO, augment_params=draws)]
        )
        for size in (3, 4, 12)
    }
    np.testing.assert_allclose(found[3], found[4], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found[3], found[12], rtol=1e-5, atol=1e-4)


def test_unreadable_images_are_left_out_and_counted(files: FileImages, tmp_path: Path) -> None:
    for number, content in ((0, b"no image"), (1, b"no image"), (11, b"")):
        (tmp_path / f"{number}.png").write_bytes(content)
    skipped = SkippedItems()
    found = list(
        load_batches(files, BATCHES, PHOTO, skipped=skipped, augment_params=draw_augment_params(12, 0, 0), workers=2)
    )
    assert [batch.indices.tolist() for batch in found] == [[5, 3], [], [2, 4, 10], [9, 8, 7, 6]]
    assert [len(batch.images) for batch in found] == [2, 0, 3, 4]
    assert skipped.counts == {"unreadable image": 2, "empty file": 1}
    with pytest.raises(InputError, match=r"/0\.png cannot be decoded"):
        list(load_batches(files, BATCHES, PHOTO))


def test_whoever_stops_early_does_not_wait(files: FileImages) -> None:
    asked = 0

    def endless() -> Iterator[Indices]:
        nonlocal asked
        while True:
            asked += 1
            yield np.arange(12)

    before = threading.active_count()
    batches = load_batches(files, endless(), PHOTO, workers=2)
    next(batches)
    begin = time.perf_counter()
    batches.close()  # type: ignore[attr-defined]
    assert time.perf_counter() - begin < 5
    assert threading.active_count() == before
    assert asked == 3  # the one that was used, and two ahead


def test_images_in_memory_skip_decoding() -> None:
    pixels = np.stack([smooth_image(seed) for seed in range(6)])
    small, draws = get_transform("small", 12), draw_augment_params(6, 0, 0)
    images = ArrayImages(pixels)
    order = [np.array([4, 1]), np.array([0, 5, 3, 2])]
    for batch in load_batches(images, order, small):
        np.testing.assert_array_equal(batch.images.transpose(0, 2, 3, 1), pixels[batch.indices])
    for batch in load_batches(images, order, small, augment_params=draws):
        chosen = torch.from_numpy(pixels[batch.indices]), torch.from_numpy(draws[batch.indices])
        np.testing.assert_array_equal(batch.images, small.augment(*chosen).numpy())
    assert [batch.indices.tolist() for batch in load_batches(images, order, small)] == [[4, 1], [0, 5, 3, 2]]


def test_nothing_gives_nothing(files: FileImages) -> None:
    assert list(load_batches(files, [], PHOTO)) == []
    assert list(load_batches(labeled_dataset("x", np.zeros(2, int)).images, [], PHOTO)) == []
    with pytest.raises(InputError, match="The number of workers must be at least 1, not 0"):
        next(load_batches(files, BATCHES, PHOTO, workers=0))
