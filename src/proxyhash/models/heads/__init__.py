"""Heads between features and codes, by name."""

from proxyhash.models.heads.base import Head, HeadConfig, Queries, create_head, describe_head, register_head
from proxyhash.models.heads.kernel import KernelHead, UnitKernelHead
from proxyhash.models.heads.linear import (
    BatchNormHashHead,
    BatchNormHead,
    ConcatHeads,
    DividedHead,
    HashHead,
    LinearHead,
    WeightedHead,
)
from proxyhash.models.heads.quantized import BlockHead, QuantizedHead, SoftmaxQuantizedHead, UnitQuantizedHead

__all__ = [
    "BatchNormHashHead",
    "BatchNormHead",
    "BlockHead",
    "ConcatHeads",
    "DividedHead",
    "HashHead",
    "Head",
    "HeadConfig",
    "KernelHead",
    "LinearHead",
    "QuantizedHead",
    "Queries",
    "SoftmaxQuantizedHead",
    "UnitKernelHead",
    "UnitQuantizedHead",
    "WeightedHead",
    "create_head",
    "describe_head",
    "register_head",
]
