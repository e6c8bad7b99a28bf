"""Checked parameters of a search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxyhash.index.calibration import THRESHOLD
from proxyhash.index.plans import Plan, check_plan
from proxyhash.index.where.expression import And, Comparison, Expression, parse_expression
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


@dataclass(frozen=True, kw_only=True)
class SearchParams:
    """Checked parameters of a search; see `Index.search`."""

    k: int | None = None  # None: all items within the radius
    radius: int | None = None
    where: Expression | None = None  # None: all items
    nprobe: int | None = None
    rerank: int | None = None
    refine: bool | None = None
    oversample: int | None = None
    threshold: float = THRESHOLD
    with_codes: bool = False
    threads: int | None = None
    plan: Plan | None = None

    @property
    def candidates(self) -> int:
        """Return how many items are found for each query before they are sorted again and cut at k."""
        assert self.k is not None
        return max(self.k * (self.oversample or 1), self.rerank or 0)


def check_search_params(
    *,
    k: int | None = None,
    radius: int | None = None,
    labels: Sequence[str] | str | None = None,
    where: str | None = None,
    nprobe: int | None = None,
    rerank: int | None = None,
    oversample: int | None = None,
    plan: str | None = None,
    **others: Any,
) -> SearchParams:
    """Return the parameters of `Index.search`, if they can be combined; with k None, those of `Index.range_search`."""
    params = SearchParams(
        k=k,
        radius=_check_optional("radius", radius, 0),
        where=make_filter(labels, where),
        nprobe=_check_optional("nprobe", nprobe, 1),
        rerank=_check_optional("rerank", rerank, 1),
        oversample=_check_optional("oversample", oversample, 1),
        plan=check_plan(plan),
        **others,
    )
    if oversample is not None and (rerank is not None or params.refine is False):
        raise InputError("Oversampling sorts by the refinement; leave out either it, or rerank and refine.")
    if params.where is not None and params.nprobe is not None:
        raise InputError("Items with a label or column are searched exactly; leave nprobe out.")
    if params.plan is not None and params.nprobe is not None:
        raise InputError("A plan is for exact search; leave nprobe or the plan out.")
    return params


def check_rerank(params: SearchParams, *, has_embeddings: bool) -> None:
    """Raise an InputError if queries without embeddings are to be re-ranked."""
    if params.rerank is not None and not has_embeddings:
        raise InputError("Re-ranking needs images, vectors or real-valued embeddings as queries, not codes.")


def _check_optional(name: str, value: int | None, minimum: int) -> int | None:
    return None if value is None else check_int(name, value, minimum)


def make_filter(labels: Sequence[str] | str | None, where: str | None) -> Expression | None:
    """Return the expression of a search for labels, for what `where` says, or for both; None without either."""
    wanted = _check_labels(labels)
    parts: list[Expression] = [] if wanted is None else [Comparison("label", "in", wanted)]
    parts += [] if where is None else [parse_expression(where)]
    return And(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)


def _check_labels(labels: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Return the labels of a filter, each once and sorted, so that equal filters share a cache entry."""
    if labels is None:
        return None
    wanted = {labels} if isinstance(labels, str) else set(labels)
    if not wanted:
        raise InputError("A search by label needs at least one label; give None to search all items.")
    if not all(isinstance(label, str) for label in wanted):
        raise InputError("The labels to search for must be texts.")
    return tuple(sorted(wanted))
