"""Multi-index and flat copy of the latest segment: announced before they are built, refused if memory is short."""

import logging
import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.clusters.segment import FlatSegment, Segment, Sink, build_flat_segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.utils.available_memory import available_memory
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.mih.multi_index import MultiIndex

MAX_MEMORY_SHARE = 0.8  # of the free memory that building may take
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class FlatCopy:
    """The codes of a clustered segment in a flat one, and the slots (N,) that they have in the clustered one."""

    segment: FlatSegment
    slots: Int64s


@dataclass(frozen=True, eq=False)
class _Built:
    """What was built of one segment and its storage. Both are referred to weakly, so that they are freed out of use."""

    segment: "weakref.ref[Segment]"
    storage: "weakref.ref[Words]"
    multi_index: "MultiIndex | None" = None
    flat: FlatCopy | None = None
    is_refused: bool = False


class TableCache:
    """The multi-index and the flat copy of one segment. They are freed when those of another segment are built."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._building = threading.Lock()
        self._built: _Built | None = None

    @property
    def memory(self) -> int:
        """Return the bytes of the multi-index that exists, 0 without one."""
        built = self._built
        return 0 if built is None or built.multi_index is None or built.storage() is None else built.multi_index.memory

    def get(self, segment: Segment) -> "MultiIndex | None":
        """Return the multi-index of a segment if it exists."""
        return self._of(segment).multi_index

    def can_build(self, segment: Segment) -> bool:
        """Return whether building was not refused for this segment."""
        return not self._of(segment).is_refused

    def require(self, segment: Segment) -> "MultiIndex":
        """Return the multi-index of a segment, built if there is none; an InputError if memory is short."""
        with self._building:
            return self.get(segment) or self._build(segment)

    def try_build(self, segment: Segment) -> "MultiIndex | None":
        """Build the multi-index of a segment; None if memory is short, or if another thread is building."""
        if not self._building.acquire(blocking=False):
            return None
        try:
            return self._build(segment)
        except InputError as error:
            self._built = replace(self._of(segment), is_refused=True)
            _log.warning("%s", error)
            return None
        finally:
            self._building.release()

    def flat(self, segment: Segment) -> FlatCopy:
        """Return the flat copy of a segment, built if there is none; an InputError if memory is short."""
        with self._building:
            built = self._of(segment)
            if built.flat is None:
                parts = -(-self._bits // 64)
                _check_memory(len(segment) * (24 * parts + 16), "A flat copy of the codes")
                copies = "Copying %s codes of %d bits from clusters, to scan them: %.0f MB."
                _log.info(copies, f"{len(segment):,}", self._bits, len(segment) * (8 * parts + 12) / 1e6)
                built = replace(built, flat=_copy_flat(segment))
                self._built = built
            assert built.flat is not None
            return built.flat

    def _of(self, segment: Segment) -> _Built:
        """Return what was built of a segment, or of one with the same slots from which codes were removed since."""
        built = self._built
        if built is not None and built.segment() is segment:
            return built
        now = _Built(weakref.ref(segment), weakref.ref(segment.storage))
        if built is not None and built.multi_index is not None and built.storage() is segment.storage:
            now = replace(now, multi_index=built.multi_index.keep(segment))
            if now.multi_index is not None:
                self._built = now
        return now

    def _build(self, segment: Segment) -> "MultiIndex":
        from proxyhash.index.mih.multi_index import build_multi_index  # defines compiled functions

        count = len(segment)
        substrings = choose_substrings(self._bits, count)
        size = substrings.memory(count, self._bits)
        copies = count * (8 * -(-self._bits // 64) + 16)  # of codes, item ids and slots, which are freed again
        _check_memory(size + copies, "The tables of multi-index hashing")
        _log.info(
            "Building %d tables for multi-index hashing of %s codes of %d bits: %.0f MB.",
            *(len(substrings), f"{count:,}", self._bits, size / 1e6),
        )
        self._built, begin = self._of(segment), time.monotonic()  # frees the tables of another segment
        found = build_multi_index(segment, self._bits)
        self._built = replace(self._of(segment), multi_index=found)
        _log.info("Built the tables for multi-index hashing in %.1f s.", time.monotonic() - begin)
        return found


def _copy_flat(segment: Segment) -> FlatCopy:
    words, item_ids = segment.all_codes()
    order = np.argsort(item_ids)

    def feed(sink: Sink) -> None:
        sink(words[:, order], item_ids[order].astype(np.uint32), np.zeros(len(order), np.uint16))

    flat = build_flat_segment(64 * len(words), len(order), feed, 1 + int(item_ids.max(initial=0)))
    return FlatCopy(flat, segment.slots()[order])


def _check_memory(size: int, what: str) -> None:
    """Raise an InputError if so many bytes are more than building may take."""
    free = available_memory()
    if free is not None and size > MAX_MEMORY_SHARE * free:
        raise InputError(
            f"{what} would take {size / 1e6:,.0f} MB while they are built, and {free / 1e6:,.0f} MB of memory are free: "
            "search with another plan, or free some memory."
        )
