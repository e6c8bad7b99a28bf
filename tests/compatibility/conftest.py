import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest
import torch

from helpers.release_0_1 import FILES

FIRST_TIME, STEP = 1_700_000_000_000_000_000, 1_000_000_000  # modification times of the images, in nanoseconds


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a cache folder of these tests, with the features that release 0.1 stored."""
    folder = tmp_path_factory.mktemp("cache")
    shutil.copytree(FILES / "features", folder / "features")
    compiled = Path(os.environ.get("PROXYHASH_CACHE") or platformdirs.user_cache_path("proxyhash")) / "compiled"
    with suppress(OSError):  # without the link, kernels are compiled again
        compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "compiled").symlink_to(compiled)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYHASH_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the images with their modification times, which are part of fingerprints."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    shutil.copytree(FILES / "photos", folder)
    for number, path in enumerate(sorted(folder.glob("*/*.png"))):
        os.utime(path, ns=(FIRST_TIME + number * STEP,) * 2)
    return folder
