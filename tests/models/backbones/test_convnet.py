import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from proxyhash.models.backbones import create_backbone
from proxyhash.models.network import NormalizedBackbone


def test_it_is_small() -> None:
    network = create_backbone("convnet", pretrained=False)
    assert 3_000 < sum(weights.numel() for weights in network.parameters()) < 100_000


@pytest.mark.parametrize("side", [1, 8, 28, 32, 64])
def test_any_small_size_fits(side: int) -> None:
    network = create_backbone("convnet", pretrained=False)
    assert network(torch.randn(2, 3, side, side)).shape == (2, 256)


def test_it_learns_digits_in_seconds() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    gray = np.round(digits.images * 255 / 16).astype(np.uint8)
    network = create_backbone("convnet", pretrained=False)
    classifier = nn.Linear(network.config.num_features, 10)
    images, labels = torch.from_numpy(gray).float()[:, None].repeat(1, 3, 1, 1), torch.from_numpy(digits.target)
    normalized = NormalizedBackbone(network)
    optimizer = torch.optim.AdamW([*network.parameters(), *classifier.parameters()], lr=3e-3)
    for _ in range(3):
        for batch in torch.randperm(1400).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(classifier(normalized(images[batch])), labels[batch]).backward()
            optimizer.step()
    network.eval()
    with torch.inference_mode():
        accuracy = (classifier(normalized(images[1400:])).argmax(1) == labels[1400:]).float().mean().item()
    assert accuracy > 0.9
