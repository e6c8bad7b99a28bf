"""Where things that can be made or fetched again are kept."""

import os
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """Return the folder for everything that is kept between runs: `PROXYHASH_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("PROXYHASH_CACHE") or platformdirs.user_cache_path("proxyhash"))
