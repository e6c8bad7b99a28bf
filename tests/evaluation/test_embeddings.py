import numpy as np
import torch

from proxyhash.evaluation import binarization_errors, nearest_proxy_accuracy


def test_binarization_errors_are_squared_distances_from_the_signs() -> None:
    embeddings = torch.tensor([[1.0, -1.0], [0.5, -1.0], [0.0, 0.0], [0.25, -0.75]])
    assert binarization_errors(embeddings).mean(1).tolist() == [0, 0.125, 1, 0.3125]
    signs = torch.where(embeddings >= 0, 1.0, -1.0)
    assert torch.equal(binarization_errors(embeddings), (embeddings - signs).square())


def test_binarization_errors_are_the_same_for_arrays_and_tensors() -> None:
    embeddings = np.random.default_rng(0).uniform(-1, 1, (5, 7)).astype(np.float32)
    np.testing.assert_array_equal(binarization_errors(embeddings), binarization_errors(torch.from_numpy(embeddings)).numpy())


def test_binarization_errors_have_a_gradient() -> None:
    embeddings = torch.tensor([[0.3, -0.6, 0.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(binarization_errors, embeddings)


def test_accuracy_ignores_classes_without_a_proxy() -> None:
    assert nearest_proxy_accuracy([0, 2, 1, 0], [0, 1, 1, -1]) == 2 / 3
    assert nearest_proxy_accuracy([0, 1], [-1, -1]) is None
