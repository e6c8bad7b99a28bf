"""Shared by all tests: hypothesis without a clock, torch on one thread, small models and pictures."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from helpers.service import Running

settings.register_profile("steady", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("steady")

# One thread, here and in processes that tests start: sums then round the same way in each, and nobody waits for cores.
os.environ["OMP_NUM_THREADS"] = "1"


def make_model(bits: int, seed: int, folder: Path) -> Path:
    """Save a hasher with random weights: enough for everything that is not about how good its codes are."""
    import torch

    from proxyhash.data.transforms import find_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadShape
    from proxyhash.proxies import design_proxies

    torch.manual_seed(seed)
    backbone = create_backbone("convnet", pretrained=False, seed=seed)
    network = HashNetwork(backbone, HashHead(HeadShape(backbone.facts.width, bits))).eval()
    Hasher(network, find_transform("small", 16), ("a", "b"), design_proxies(4, bits, "random")).save(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model of 32 bits."""
    return make_model(32, 0, tmp_path_factory.mktemp("models") / "first")


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model of 24 bits."""
    return make_model(24, 1, tmp_path_factory.mktemp("models") / "second")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of twelve pictures of two classes."""
    random = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / "photos" / ("cats" if number < 6 else "dogs") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture(scope="session")
def photo_service(tmp_path_factory: pytest.TempPathFactory, model: Path) -> "Iterator[Running]":
    """Serve the index of some pictures, to all tests of the service that leave its pictures alone."""
    sys.path.insert(0, str(Path(__file__).parent / "serve"))
    from helpers.service import make_photo_index, serving

    with serving(make_photo_index(tmp_path_factory.mktemp("service"), model), body_bytes=2_000_000) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Open the system's Chromium; without one, what needs it is skipped and says so."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()
