"""Methods on given features: closed forms and alternations, no network."""

from proxyhash.methods.shallow import itq, ksh, lsh, sdh  # noqa: F401  they register themselves
from proxyhash.methods.shallow.feature_hasher import FeatureHasher

__all__ = ["FeatureHasher"]
