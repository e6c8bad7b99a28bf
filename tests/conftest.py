"""Settings and fixtures of all tests: hypothesis profile, one thread, small models and images."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

from helpers.images import save_image
from helpers.models import make_model
from proxyhash.utils.jit import cold_start

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from helpers.service import RunningService

settings.register_profile("steady", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("steady")

# One thread, here and in processes that tests start: sums then round the same way, and cores are not oversubscribed.
os.environ["OMP_NUM_THREADS"] = "1"
# Compiled functions do all jobs, so that a test does not depend on those before it.
cold_start.end()
# Processes that tests start import the helpers too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


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
    """Return a folder with twelve images of two classes."""
    random = np.random.default_rng(0)
    for number in range(12):
        label = "cats" if number < 6 else "dogs"
        save_image(random.integers(0, 256, (20, 30, 3), dtype=np.uint8), tmp_path / "photos" / label / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture(scope="session")
def photo_service(tmp_path_factory: pytest.TempPathFactory, model: Path) -> "Iterator[RunningService]":
    """Serve the index of some images, for all tests that do not change the images."""
    from helpers.service import make_photo_index, serving

    with serving(make_photo_index(tmp_path_factory.mktemp("service"), model), image_bytes=2_000_000) as running:
        yield running


@pytest.fixture(scope="session")
def column_service(tmp_path_factory: pytest.TempPathFactory, model: Path) -> "Iterator[RunningService]":
    """Serve the index of some images with columns, for all tests that do not change it."""
    from helpers.service import make_column_index, serving

    with serving(make_column_index(tmp_path_factory.mktemp("columns"), model), {"token": None}) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Open the Chromium of the system; without one, the test is skipped."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()
