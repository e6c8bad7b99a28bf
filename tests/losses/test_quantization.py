import pytest
import torch

from proxyhash.losses import quantization_loss


def test_the_loss_is_the_mean_squared_distance_to_the_signs() -> None:
    nu = torch.tensor([[1.0, -1.0], [0.5, -1.0], [0.0, 0.0], [0.25, -0.75]])
    assert quantization_loss(nu).item() == pytest.approx((0 + 0.25 + 2 + 0.625) / 8)


def test_the_gradient_is_that_of_the_loss() -> None:
    nu = torch.tensor([[0.3, -0.6, 0.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(quantization_loss, nu)
