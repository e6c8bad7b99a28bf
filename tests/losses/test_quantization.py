import pytest
import torch

from proxyhash import InputError
from proxyhash.losses import binarization_error


def test_the_error_by_hand() -> None:
    nu = torch.tensor([[1.0, -1.0], [0.5, -1.0], [0.0, 0.0], [0.25, -0.75]])
    assert binarization_error(nu).tolist() == [0, 0.125, 1, 0.3125]


def test_its_gradient() -> None:
    nu = torch.tensor([[0.3, -0.6, 0.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(binarization_error, nu)


@pytest.mark.parametrize("shape", [(3,), (2, 0)])
def test_what_is_no_embedding_is_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"a matrix \(images, bits\)"):
        binarization_error(torch.zeros(shape))
