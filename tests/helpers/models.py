"""Small models for tests."""

from pathlib import Path


def make_model(bits: int, seed: int, folder: Path) -> Path:
    """Save a hasher with random weights: enough for tests that do not measure the quality of codes."""
    import torch

    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
    from proxyhash.proxies import design_proxies

    torch.manual_seed(seed)
    backbone = create_backbone("convnet", pretrained=False, seed=seed)
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, bits))).eval()
    Hasher(network, get_transform("small", 16), ("a", "b"), design_proxies(4, bits, "random")).save(folder)
    return folder
