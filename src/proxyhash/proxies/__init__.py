"""Design of proxies, one for each class: tammes -> alignment -> binary -> assignment, section 4 of the paper.

Each step is a pure function in the module of its name, e.g. `proxyhash.proxies.tammes.tammes`.
"""

from proxyhash.proxies.design import design_proxies
from proxyhash.proxies.extension import extend_proxies
from proxyhash.proxies.kinds import list_kinds
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.proxies.quality import AssignmentQuality, ProxyQuality, measure_quality
from proxyhash.proxies.similarity import class_mean_similarity, tag_similarity

__all__ = [
    "AssignmentQuality",
    "ProxyQuality",
    "ProxySet",
    "class_mean_similarity",
    "design_proxies",
    "extend_proxies",
    "list_kinds",
    "measure_quality",
    "tag_similarity",
]
