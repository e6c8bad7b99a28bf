"""The systems that the paper compares with, each one file, all under one contract. They need torch (the extra `train`)."""

from proxyhash.methods import shallow  # noqa: F401  its methods register themselves
from proxyhash.methods.deep import (  # noqa: F401  so do these
    adsh,
    bhc,
    cnnh,
    csq,
    dpn,
    dpsh,
    dqn,
    drsch,
    dsdh,
    dsrh,
    dtsh,
    greedyhash,
    hashnet,
    hbmp,
    mdsh,
    mihash,
    ninh,
    orthohash,
    proxies,
    softmax_pq,
    subic,
    talr,
)
from proxyhash.methods.lesson import Encoder, Lesson
from proxyhash.methods.registry import Method, find_method, fit_method, list_methods

__all__ = ["Encoder", "Lesson", "Method", "find_method", "fit_method", "list_methods"]
