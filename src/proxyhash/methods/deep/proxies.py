"""The paper's own methods in the comparison: every kind of proxies, and the triplet loss alone."""

from proxyhash.methods.registry import list_as_method
from proxyhash.proxies import list_kinds

for _kind in list_kinds():
    list_as_method(_kind, _kind if _kind in ("random", "learned") else _kind.replace("hclm", "HCLM"), "proxy", 2019)
list_as_method("triplet", "Triplet", "triplet", 2019)
