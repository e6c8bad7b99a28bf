import numpy as np
import pytest
import torch

from proxyhash.models.backbones.facts import IMAGENET_MEAN, IMAGENET_STD, BackboneConfig
from proxyhash.utils.errors import InputError

FACTS = BackboneConfig("made", 4, mean=(127.0, 100.0, 0.0), std=(128.0, 50.0, 1.0), num_features=2)


def pixels() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)


def test_values_by_hand() -> None:
    image = np.full((1, 2, 2, 3), (255, 0, 7), np.uint8)
    assert FACTS.normalize(image)[0, :, 0, 0].tolist() == [1.0, -2.0, 7.0]


def test_both_layouts_give_the_same() -> None:
    last = FACTS.normalize(pixels())
    first = FACTS.normalize(torch.from_numpy(pixels()).permute(0, 3, 1, 2).contiguous())
    assert last.shape == (2, 3, 4, 5)
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, first, rtol=0, atol=0)
    assert last.dtype == torch.float32


def test_the_images_stay_as_they_are_and_views_are_welcome() -> None:
    original = pixels()
    flipped = original[:, :, ::-1]
    flipped.flags.writeable = False
    np.testing.assert_array_equal(FACTS.normalize(flipped).numpy(), FACTS.normalize(original).numpy()[..., ::-1])
    np.testing.assert_array_equal(original, pixels())


def test_torchvisions_numbers() -> None:
    np.testing.assert_allclose(IMAGENET_MEAN, 255 * np.array([0.485, 0.456, 0.406]))
    np.testing.assert_allclose(IMAGENET_STD, 255 * np.array([0.229, 0.224, 0.225]))


def test_floats_are_refused_because_their_scale_is_unknown() -> None:
    with pytest.raises(InputError, match="must be bytes"):
        FACTS.normalize(torch.zeros(1, 3, 4, 4))


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 4, 1), (2, 3, 5, 3), (1, 1, 4, 4)])
def test_shapes_without_a_clear_color_axis_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="shape"):
        FACTS.normalize(np.zeros(shape, np.uint8))
