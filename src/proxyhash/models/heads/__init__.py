"""What stands between features and codes: one head a file, known by its name, so that a saved model can build it again."""

from proxyhash.models.heads.divided import DividedHead
from proxyhash.models.heads.head import Head, HeadShape, Queries
from proxyhash.models.heads.plain import HashHead, LinearHead
from proxyhash.models.heads.registry import describe_head, head_kind, make_head
from proxyhash.models.heads.weighted import WeightedHead

__all__ = [
    "DividedHead",
    "HashHead",
    "Head",
    "HeadShape",
    "LinearHead",
    "Queries",
    "WeightedHead",
    "describe_head",
    "head_kind",
    "make_head",
]
