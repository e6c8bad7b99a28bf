"""What stands between features and codes: one head a file, known by its name, so that a saved model can build it again."""

from proxyhash.models.heads.base import Head, HeadConfig, Queries
from proxyhash.models.heads.blocks import BlockHead
from proxyhash.models.heads.divided import DividedHead
from proxyhash.models.heads.linear import HashHead, LinearHead
from proxyhash.models.heads.quantized import QuantisedHead, SoftmaxQuantisedHead, UnitQuantisedHead
from proxyhash.models.heads.registry import describe_head, register_head, create_head
from proxyhash.models.heads.weighted import WeightedHead

__all__ = [
    "BlockHead",
    "DividedHead",
    "HashHead",
    "Head",
    "HeadConfig",
    "LinearHead",
    "QuantisedHead",
    "Queries",
    "SoftmaxQuantisedHead",
    "UnitQuantisedHead",
    "WeightedHead",
    "describe_head",
    "register_head",
    "create_head",
]
