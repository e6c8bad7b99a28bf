"""Loss values and gradients of methods."""

from math import log

import numpy as np
import pytest
import torch

from helpers.method_losses import NU, build, loss_value, softplus
from proxyhash.methods import TrainingData, build_method, list_methods
from proxyhash.models.heads import HeadConfig
from proxyhash.proxies import list_kinds


def test_dpsh_is_the_likelihood_of_pairs_plus_quantization() -> None:
    theta = {(0, 1): 0.25, (0, 2): -0.375, (1, 2): -0.25}
    pairs = -(theta[0, 1] - softplus(theta[0, 1])) + softplus(theta[0, 2]) + softplus(theta[1, 2])
    distances = (0.25 + 0 + 0 + 1 + 0.25 + 0.25) / 6
    assert loss_value(build("dpsh", quantization=0.5)) == pytest.approx(pairs / 3 + 0.5 * distances)


def test_dtsh_is_the_likelihood_of_triplets() -> None:
    theta = {(0, 1): 0.25, (0, 2): -0.375, (1, 2): -0.25}
    triplets = [softplus(1 - theta[0, 1] + theta[0, 2]), softplus(1 - theta[0, 1] + theta[1, 2])]
    assert loss_value(build("dtsh", quantization=0.0)) == pytest.approx(sum(triplets) / 2)


def test_ssdh_adds_saturation_and_balance_to_bhc() -> None:
    objective = build("ssdh", saturation=2.0, balance=3.0)
    plain = loss_value(build("bhc"))
    ends = sum((x / 2) ** 2 for x in NU.flatten().tolist()) / 6
    balance = sum((row.mean().item() / 2) ** 2 for row in NU) / 3
    assert loss_value(objective) == pytest.approx(plain - 2 * ends + 3 * balance)


def test_csq_pulls_images_to_the_center_of_their_class() -> None:
    objective = build("csq", bits=4, classes=4, pairs=0.0, quantization=0.0)
    centers = objective.get_buffer("centers")
    np.testing.assert_array_equal((centers @ centers.T).numpy(), 4 * np.eye(4))
    nu = 0.5 * centers
    assert loss_value(objective, nu, torch.arange(4)) == pytest.approx(-log(0.75))
    assert (objective.scores(nu).argmax(1) == torch.arange(4)).all()  # type: ignore[union-attr]


def test_csq_targets_of_tags_are_the_majority_vote() -> None:
    tags = np.array([[1, 1, 0], [0, 0, 1]], bool)
    objective = build_method("csq", TrainingData.from_arrays(4, None, tags), {"pairs": 0.0, "quantization": 0.0})
    centers, coin = objective.get_buffer("centers"), objective.get_buffer("coin")
    goal = torch.sign(centers[0] + centers[1] + 0.5 * coin)
    both = torch.stack([goal, centers[2]])
    assert objective(0.5 * both, torch.from_numpy(tags).float(), torch.arange(2)).item() == pytest.approx(-log(0.75))


def test_orthohash_subtracts_the_margin_from_the_own_cosine() -> None:
    objective = build("orthohash", bits=2, classes=2)
    objective.get_buffer("codes").copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    nu = torch.tensor([[0.3, 0.3]], dtype=torch.float64)
    assert loss_value(objective, nu, torch.tensor([0])) == pytest.approx(softplus(-8 * 0.8))
    assert loss_value(objective, nu, torch.tensor([1])) == pytest.approx(softplus(8 * 1.2))


NO_GRADIENT = {
    "greedyhash",
    *list_kinds(),
}  # the sign has none but the one it is given; proxies are tested with their losses


@pytest.mark.parametrize("name", [name for name in list_methods(trains=True) if name not in NO_GRADIENT])
def test_gradients_match_finite_differences(name: str) -> None:
    objective = build(name, bits=4, classes=3).eval()  # in training, ADSH updates its codes between two calls
    random = torch.Generator().manual_seed(1)
    head = objective.build_head(HeadConfig(5, 4))
    nu = (1.6 * torch.rand(6, head.out_features, generator=random, dtype=torch.float64) - 0.8).requires_grad_()
    if head.metric in ("one-hot blocks", "product quantizer"):
        nu = head.double()(torch.randn(6, 5, generator=random, dtype=torch.float64)).detach().requires_grad_()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda x: objective(x, labels, torch.arange(6)), (nu,))
