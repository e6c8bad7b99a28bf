"""The cache folder."""

import os
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """Return the root of all caches: `PROXYHASH_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("PROXYHASH_CACHE") or platformdirs.user_cache_path("proxyhash"))
