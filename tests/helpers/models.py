"""Small models for tests."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from proxyhash.models.vector_hasher import VectorHasher


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


def rewrite_json(path: Path, **changes: object) -> None:
    """Change fields of a JSON file, and its checksum with them, as someone does who knows the format."""
    from proxyhash.utils.formats import dump_json, read_json

    path.write_text(dump_json(read_json(path) | changes), encoding="utf-8")


def relist(folder: Path, *names: str) -> None:
    """Write the checksums of changed files of a model to its config.json."""
    from proxyhash.utils.atomic_io import checksum

    sums = json.loads((folder / "config.json").read_text())["sha256"]
    rewrite_json(folder / "config.json", sha256=sums | {name: checksum(folder / name, "sha256") for name in names})


def load_encoder(folder: Path) -> "VectorHasher":
    """Load a model that takes vectors."""
    from proxyhash.models.hasher import Hasher

    return cast("VectorHasher", Hasher.load(folder))


def make_vector_model(width: int, bits: int, seed: int, folder: Path, *, normalize: bool = True) -> Path:
    """Save an encoder of vectors with random weights."""
    import torch

    from proxyhash.models.heads import HashHead, HeadConfig
    from proxyhash.models.vector_hasher import VectorHasher, VectorNetwork

    torch.manual_seed(seed)
    VectorHasher(VectorNetwork(HashHead(HeadConfig(width, bits)).eval(), normalize=normalize)).save(folder)
    return folder
