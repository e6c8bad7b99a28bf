"""Heads between features and codes, by name."""

from proxyhash.models.heads.base import Head, HeadShape, Queries
from proxyhash.models.heads.blocks import BlockHead
from proxyhash.models.heads.divided import DividedHead
from proxyhash.models.heads.linear import HashHead, LinearHead
from proxyhash.models.heads.quantized import QuantisedHead, SoftmaxQuantisedHead, UnitQuantisedHead
from proxyhash.models.heads.registry import describe_head, head_kind, make_head
from proxyhash.models.heads.weighted import WeightedHead

__all__ = [
    "BlockHead",
    "DividedHead",
    "HashHead",
    "Head",
    "HeadShape",
    "LinearHead",
    "QuantisedHead",
    "Queries",
    "SoftmaxQuantisedHead",
    "UnitQuantisedHead",
    "WeightedHead",
    "describe_head",
    "head_kind",
    "make_head",
]
