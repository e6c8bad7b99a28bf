"""Loss values of methods around a classifier or fixed targets."""

from math import exp, log

import pytest
import torch

from helpers.method_losses import LABELS, NU, build, loss_value, softplus
from proxyhash.methods.greedyhash import straight_through_signs


def test_dpn_is_a_hinge_on_every_bit() -> None:
    objective = build("dpn", margin=0.75)
    objective.get_buffer("centers").copy_(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    hinges = [0.25, 0.0, 0.0, 0.75, 1.25, 0.25]
    assert loss_value(objective) == pytest.approx(sum(hinges) / 6)


def test_greedyhash_classifies_signs_and_penalizes_distance_to_one() -> None:
    objective = build("greedyhash", penalty=0.5)
    with torch.no_grad():
        objective.get_parameter("classifier.weight").copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    # signs (1, -1), (1, 1), (-1, 1) give logits (1, -2), (1, 2), (-1, 2)
    crossed = (softplus(-3) + softplus(1) + softplus(-3)) / 3
    penalty = (0.125 + 0 + 0 + 1 + 0.125 + 0.125) / 6
    assert loss_value(objective) == pytest.approx(crossed + 0.5 * penalty)


def test_straight_through_signs_have_the_gradient_of_their_input() -> None:
    u = NU.clone().requires_grad_()
    signs = straight_through_signs(u)
    assert signs.tolist() == [[1, -1], [1, 1], [-1, 1]]
    (signs * torch.arange(6.0).reshape(3, 2)).sum().backward()
    assert u.grad is not None
    assert u.grad.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_subic_adds_block_entropy_and_subtracts_batch_entropy() -> None:
    objective = build("subic", bits=1, sparse=2.0, spread=3.0)  # one block of two values
    with torch.no_grad():
        objective.get_parameter("classifier.weight").copy_(torch.eye(2))
        objective.get_parameter("classifier.bias").zero_()
    blocks = torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)
    crossed = (log(2) + log(1 + exp(1))) / 2 / log(2)
    mean = -(0.75 * log(0.75) + 0.25 * log(0.25)) / log(2)
    assert loss_value(objective, blocks, torch.tensor([0, 1])) == pytest.approx(crossed + 2 * 0.5 - 3 * mean)


def test_softmax_pq_is_the_cross_entropy_of_its_softmax() -> None:
    chances = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.1, 0.9]], dtype=torch.float64)
    assert loss_value(build("softmax-pq", bits=8), chances, LABELS) == pytest.approx(-(log(0.5) + log(0.8) + log(0.9)) / 3)
