"""Search for near duplicates in an index, or between two."""

from pathlib import Path
from typing import NamedTuple

from proxyhash.index.duplicates.compared import ComparedItems, read_items
from proxyhash.index.duplicates.description import Source, describe_groups
from proxyhash.index.duplicates.groups import Groups, Thresholds, find_groups, find_groups_across
from proxyhash.index.duplicates.keeping import parse_keep_best
from proxyhash.index.duplicates.report import DuplicatesReport
from proxyhash.index.duplicates.state import SearchId, read_state, write_state
from proxyhash.index.local.index import LocalIndex
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

MAX_GROUP = 1000  # items; a larger group is rather a class than copies of one image
MAX_REFINE_RADIUS = 1_000_000


def find_duplicates(
    index: LocalIndex,
    radius: int = 0,
    *,
    refine: bool | None = None,
    refine_radius: float | None = None,
    against: LocalIndex | None = None,
    since: Path | None = None,
    keep_best: str | None = None,
    max_group: int = MAX_GROUP,
    with_files: bool = False,
    progress: Progress = no_progress,
) -> DuplicatesReport:
    """Find all groups of items that are connected by near pairs, exactly. Nothing is changed or deleted.

    Two items are near if their codes differ in at most `radius` bits and, where the index has a refinement, these are near
    too. Two items of a group may be farther apart, if others lie between them.

    Parameters
    ----------
    index
        An index in a folder.
    radius
        Bits in which the codes of near items may differ.
    refine
        Whether refinements must be near too. None: if the index has them.
    refine_radius
        Largest distance of refinements: bits of codes, or the Euclidean distance of int8 values. None: a default that was
        measured with photographs.
    against
        Another index of the same model. Only pairs of an item of `index` and an item of this one are near.
    since
        State file of an earlier search, which is written again at the end. If it is of the same search, only items that were
        added since are compared; the result is the same.
    keep_best
        Which item of a group to keep: "resolution", "size", "name=PATTERN", or several with commas between them. Items that
        are equal by these, and all without them, go by the order in which they were added, those of `against` first.
    max_group
        Number of items that are listed of a group.
    with_files
        Read the sizes of images and files.
    progress
        Called with the share that is done.

    Returns
    -------
    DuplicatesReport
        The groups, the largest first.

    Raises
    ------
    InputError
        If the indexes cannot be compared, or a refinement is asked for that is not there.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> codes = np.array([[0], [1], [240], [241], [15]], np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder, LocalIndex.open_folder(Path(folder) / "index", bits=8) as index:
    ...     index.add(codes, keys=["a", "b", "c", "d", "e"])
    ...     [[item.key for item in group.items] for group in find_duplicates(index, radius=1)]
    AddResult(5)
    [['a', 'b'], ['c', 'd']]
    """
    radius, max_group = check_int("radius", radius, minimum=0), check_int("max_group", max_group, minimum=2)
    keep, wanted = parse_keep_best(keep_best), _Wanted(radius, refine, refine_radius)
    if against is None:
        found = _search(index, wanted, since, progress)
    elif since is None:
        found = _search_across(index, against, wanted, progress)
    else:
        raise InputError("A state file is of one index; leave it out to compare two indexes.")
    groups = describe_groups(found.groups, found.sources, keep, max_group, with_files=with_files)
    items = found.sources[0].items
    unit = None if items.refinement is None else items.refinement.unit
    left_out = sum(source.items.num_left_out for source in found.sources)
    return DuplicatesReport(groups, found.thresholds, unit, len(items), found.num_new, left_out)


def radius_of_precision(index: LocalIndex, precision: float) -> int:
    """Return the largest distance at which the calibration of an index expects at least this precision.

    Raises
    ------
    InputError
        If the model was not calibrated, or no distance has this precision.
    """
    if not 0 < precision <= 1:
        raise InputError(f"precision must be above 0 and at most 1, not {precision}.")
    calibration = index.calibration
    if calibration is None:
        raise InputError(f"The model of {index.folder} was not calibrated; run proxyhash index calibrate, or give a radius.")
    radius = calibration.radius(precision)
    if radius < 0:
        best = float(calibration.precision[0])
        raise InputError(f"Even equal codes have an expected precision of {best:.3f}, which is below {precision}.")
    return radius


class _Wanted(NamedTuple):
    """The thresholds that were asked for."""

    radius: int
    refine: bool | None
    refine_radius: float | None

    def thresholds(self, items: ComparedItems) -> Thresholds:
        """Return the thresholds for items with or without a refinement."""
        if items.refinement is None:
            if self.refine or self.refine_radius is not None:
                raise InputError("There is no refinement to compare; leave it out, or run: proxyhash index refine")
            return Thresholds(self.radius)
        limit = items.refinement.default_radius() if self.refine_radius is None else float(self.refine_radius)
        if not 0 <= limit < MAX_REFINE_RADIUS:
            raise InputError(f"refine_radius must be between 0 and {MAX_REFINE_RADIUS:,}, not {limit}.")
        return Thresholds(self.radius, limit)


class _Found(NamedTuple):
    """Groups, the indexes of their items, and how they were found."""

    groups: Groups
    sources: list[Source]
    thresholds: Thresholds
    num_new: int


def _search(index: LocalIndex, wanted: _Wanted, since: Path | None, progress: Progress) -> _Found:
    """Search one index, with the help of a state file."""
    items, state = read_items(index, refine=wanted.refine is not False)
    thresholds = wanted.thresholds(items)
    search = SearchId(state.index_id, state.version, thresholds, _refiner(items))
    known = None if since is None else read_state(since, search, state.generation)
    groups, num_new = find_groups(items, thresholds, known, progress=progress)
    if since is not None:
        write_state(since, search, state.generation, items.item_ids, groups)
    return _Found(groups, [Source(index.store, items)], thresholds, num_new)


def _search_across(index: LocalIndex, against: LocalIndex, wanted: _Wanted, progress: Progress) -> _Found:
    """Compare two indexes. Refinements are compared if they are of one refiner."""
    if (index.model, index.bits) != (against.model, against.bits):
        raise InputError(f"{index.folder} and {against.folder} are of different models, whose codes cannot be compared.")
    items, others = (read_items(one, refine=wanted.refine is not False)[0] for one in (index, against))
    if _refiner(items) != _refiner(others):
        items, others = (read_items(one, refine=False)[0] for one in (index, against))
    thresholds = wanted.thresholds(items)
    groups = find_groups_across(items, others, thresholds, progress=progress)
    return _Found(groups, [Source(index.store, items), Source(against.store, others)], thresholds, len(items))


def _refiner(items: ComparedItems) -> str | None:
    return None if items.refinement is None else items.refinement.refiner
