import numpy as np
import pytest
import torch

from proxyhash.training.activations import ActivationSource

SHAPE = (40, 3, 5, 2)  # 60 bytes an image


def stored(crop: int = 0) -> np.ndarray:
    values = np.random.default_rng(crop).normal(size=SHAPE).astype(np.float16)
    values[:, 0, 0, 0] = np.arange(len(values)) + 100 * crop  # tells image and crop
    return values


def numbers(inputs: torch.Tensor) -> np.ndarray:
    return inputs[:, 0, 0, [0, -1]].max(1).values.numpy()  # a flip exchanges the columns


def test_evaluation_has_the_stored_values_with_channels_second() -> None:
    source = ActivationSource((stored(), stored(1)), flip=True)
    (inputs,) = source.eval_batches([np.array([7, 3])])
    assert inputs.dtype == torch.float32
    np.testing.assert_array_equal(inputs.permute(0, 2, 3, 1), stored()[[7, 3]])


def test_training_flips_about_half_of_the_maps_and_nothing_else() -> None:
    source = ActivationSource((stored(),), flip=True)
    flipped = 0
    for epoch in range(4):
        (inputs,) = source.train_batches([np.arange(40)], epoch)
        for given, own in zip(inputs.permute(0, 2, 3, 1).numpy(), stored(), strict=True):
            is_flipped = not np.array_equal(given, own)
            flipped += is_flipped
            np.testing.assert_array_equal(given, own[:, ::-1] if is_flipped else own)
    assert 50 < flipped < 110
    (inputs,) = ActivationSource((stored(),), flip=False).train_batches([np.arange(40)], 0)
    np.testing.assert_array_equal(inputs.permute(0, 2, 3, 1), stored())


def test_token_activations_are_not_flipped() -> None:
    tokens = np.random.default_rng(0).normal(size=(10, 4, 3)).astype(np.float16)
    (inputs,) = ActivationSource((tokens,), flip=True).train_batches([np.arange(10)], 0)
    np.testing.assert_array_equal(inputs, tokens)


def test_draws_do_not_depend_on_batches() -> None:
    source = ActivationSource((stored(), stored(1)), flip=True, seed=3)
    (together,) = source.train_batches([np.arange(40)], 2)
    apart = torch.cat(list(source.train_batches(np.array_split(np.arange(40), 7), 2)))
    assert torch.equal(together, apart)
    (other,) = source.train_batches([np.arange(40)], 3)
    assert not torch.equal(together, other)


def test_each_image_has_one_of_its_crops() -> None:
    source = ActivationSource((stored(), stored(1)), flip=False)
    (inputs,) = source.train_batches([np.arange(40)], 0)
    crops = (inputs[:, 0, 0, 0].numpy() - np.arange(40)) / 100
    assert set(crops) == {0, 1}
    for inputs_of_one, number, crop in zip(inputs, range(40), crops.astype(int), strict=True):
        np.testing.assert_array_equal(inputs_of_one.permute(1, 2, 0), stored(crop)[number])


@pytest.mark.parametrize("chunk_bytes", [60, 600, 1500, 10**6])
def test_chunks_hold_every_image_once_and_fit_into_memory(chunk_bytes: int) -> None:
    source = ActivationSource((stored(),), flip=False, chunk_bytes=chunk_bytes, block_bytes=120)
    indices = np.setdiff1d(np.arange(40), [5, 6, 20])
    chunks = source.chunks(indices, 0)
    np.testing.assert_array_equal(np.sort(np.concatenate(chunks)), np.arange(37))
    assert max(map(len, chunks)) * 60 <= max(chunk_bytes, 120)
    if len(chunks) > 1:
        assert [len(chunk) for chunk in chunks] != sorted(map(len, source.chunks(indices, 1))) or len(chunks) == 20
        assert any(not np.array_equal(one, other) for one, other in zip(chunks, source.chunks(indices, 1), strict=True))
    assert sum(map(len, chunks)) == len(indices)


def test_batches_of_chunks_have_the_right_images() -> None:
    source = ActivationSource((stored(), stored(1)), flip=True, chunk_bytes=600, block_bytes=120)
    whole = ActivationSource((stored(), stored(1)), flip=True)
    batches = [
        chunk[batch] for chunk in source.chunks(np.arange(40), 1) for batch in np.array_split(np.arange(len(chunk)), 2)
    ]
    assert len(batches) > 6
    (expected,) = whole.train_batches([np.arange(40)], 1)
    for batch, inputs in zip(batches, source.train_batches(batches, 1), strict=True):
        assert torch.equal(inputs, expected[batch])
        np.testing.assert_array_equal(numbers(inputs) % 100, numbers(expected[batch]) % 100)


def test_a_resumed_epoch_has_the_remaining_batches() -> None:
    source = ActivationSource((stored(),), flip=True, chunk_bytes=600, block_bytes=120)
    batches = list(source.chunks(np.arange(40), 0))
    whole = list(source.train_batches(batches, 0))
    for inputs, expected in zip(source.train_batches(batches[2:], 0), whole[2:], strict=True):
        assert torch.equal(inputs, expected)
