"""Where each class should sit in Hamming space: tammes -> alignment -> binary -> assignment, section 4 of the paper.

Each step is a pure function in the file of its name, e.g. `proxyhash.proxies.tammes.tammes`.
"""

from proxyhash.proxies.design import design_proxies
from proxyhash.proxies.extension import extend
from proxyhash.proxies.kinds import list_kinds
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.proxies.quality import AssignmentQuality, Quality, measure
from proxyhash.proxies.similarity import class_mean_similarity, tag_similarity

__all__ = [
    "AssignmentQuality",
    "ProxySet",
    "Quality",
    "class_mean_similarity",
    "design_proxies",
    "extend",
    "list_kinds",
    "measure",
    "tag_similarity",
]
