"""Codes that can be scanned: as bit planes, as plain rows that are converted on the way, or as plain rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, empty_words
from proxyhash.codes.bitsliced.kernels import Collected, Nearest, SlicedQueries, collect_blocks, nearest_blocks
from proxyhash.codes.bitsliced.llvm_ops import WIDE_BLOCK, WIDE_WORDS
from proxyhash.codes.bitsliced.slicing import CodeRows, code_rows, join_all, join_rows, slice_rows
from proxyhash.codes.bitsliced.sums import PATTERN_WORDS, TRIPLE_WORDS
from proxyhash.codes.row_kernels import collect_rows, nearest_rows
from proxyhash.codes.slot_mask import SlotMask, pack_bits
from proxyhash.utils.parallel import over_slices

_MIN_TABLE_QUERIES = 16  # with fewer queries, tables of a block cost more than they save
_CHUNK_BYTES = 1 << 18  # planes that are made of plain codes at a time, and stay in the second-level cache
_CODES_PER_SLICE = 1 << 14  # that a thread reads at a time
_ROOM = 1 << 16  # items that are collected before more room is made

Int64s = NDArray[np.int64]


class CodeSource(ABC):
    """Codes in slots, of which some may be found; a block is 64 L slots."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Return the number of bits that are compared."""

    @property
    @abstractmethod
    def num_blocks(self) -> int:
        """Return the number of blocks."""

    @property
    @abstractmethod
    def num_valid(self) -> int:
        """Return the number of items that may be found."""

    @abstractmethod
    def update_nearest(self, queries: Packed, found: Nearest, blocks: range) -> None:
        """Update the nearest items of packed queries (Q, bytes) by a range of blocks."""

    @abstractmethod
    def collect(self, queries: Packed, limits: Int64s, blocks: range) -> list[Collected]:
        """Return all items of a range of blocks that are below the limits (Q,) of packed queries (Q, bytes)."""


class PlaneSource(CodeSource):
    """Codes that come as bit planes."""

    @abstractmethod
    def chunks(self, first: int, last: int) -> Iterator[tuple[int, Words, Words]]:
        """Yield the first block, the planes (B, P, L) and the valid items (B, L) of parts of a range of blocks."""

    def update_nearest(self, queries: Packed, found: Nearest, blocks: range) -> None:
        """Update the nearest items of packed queries (Q, bytes) by a range of blocks."""
        prepared = prepare_queries(queries)
        for first, planes, valid in self.chunks(blocks.start, blocks.stop):
            nearest_blocks(planes, valid, WIDE_BLOCK * first, prepared, found)

    def collect(self, queries: Packed, limits: Int64s, blocks: range) -> list[Collected]:
        """Return all items of a range of blocks that are below the limits (Q,) of packed queries (Q, bytes)."""
        prepared = prepare_queries(queries)
        limit_bits = limit_planes(limits, len(prepared.levels))
        full, found = [], empty_collected()
        for first, planes, valid in self.chunks(blocks.start, blocks.stop):
            while not collect_blocks(planes, valid, WIDE_BLOCK * first, prepared, limit_bits, found):
                full.append(found)
                found = empty_collected(found.state[1:])
        return [*full, found]


@dataclass(frozen=True, eq=False)
class SlicedCodes(PlaneSource):
    """Codes that are stored as bit planes (B, P, L); `valid` (B, L) marks the slots that hold a code.

    Examples
    --------
    >>> codes = slice_codes(np.array([[1], [2], [3]], np.uint8))
    >>> codes.bits, codes.num_valid, codes.codes(np.array([2])).tolist()
    (8, 3, [[3]])
    """

    planes: Words
    valid: Words

    @property
    def bits(self) -> int:
        """Return the number of planes of a block."""
        return int(self.planes.shape[1])

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.planes)

    @property
    def num_slots(self) -> int:
        """Return the number of slots."""
        return WIDE_BLOCK * len(self.planes)

    @cached_property
    def num_valid(self) -> int:
        """Return the number of items that may be found."""
        return int(np.bitwise_count(self.valid).sum())

    def only(self, allowed: SlotMask) -> "SlicedCodes":
        """Return the same codes, of which only those in allowed slots may be found."""
        return SlicedCodes(self.planes, self.valid & allowed.blocks(*self.valid.shape))

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, Words, Words]]:
        """Yield a range of blocks at once: nothing is converted."""
        yield first, self.planes[first:last], self.valid[first:last]

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        out = np.empty((len(slots), -(-self.bits // 64)), np.uint64)
        over_slices(len(slots), _CODES_PER_SLICE, lambda rows: join_rows(self.planes, slots[rows], out[rows]))
        return out

    def all_codes(self) -> Words:
        """Return the codes of all slots (W, slots), those that hold none included."""
        out = np.empty((-(-self.bits // 64), self.num_slots), np.uint64)
        join_all(self.planes, 0, out)
        return out


@dataclass(frozen=True, eq=False)
class PlainCodes(PlaneSource):
    """Codes `rows` (N, W) that are converted to bit planes while they are searched."""

    rows: CodeRows
    num_bits: int

    @property
    def bits(self) -> int:
        """Return the number of bits that are compared."""
        return self.num_bits

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return -(-len(self.rows) // WIDE_BLOCK)

    @property
    def num_valid(self) -> int:
        """Return the number of codes."""
        return len(self.rows)

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, Words, Words]]:
        """Yield blocks that fit the cache."""
        size = max(1, _CHUNK_BYTES // (8 * WIDE_WORDS * self.bits))
        planes = empty_words((min(size, last - first), self.bits, WIDE_WORDS))
        for begin in range(first, last, size):
            part = planes[: min(size, last - begin)]
            slice_rows(self.rows, WIDE_BLOCK * begin, part)
            yield begin, part, valid_slots(len(self.rows) - WIDE_BLOCK * begin, len(part))


@dataclass(frozen=True, eq=False)
class RowCodes(CodeSource):
    """Codes `rows` (N, W) that are compared as they are, which is fastest for a few queries."""

    rows: CodeRows
    num_bits: int

    @property
    def bits(self) -> int:
        """Return the number of bits that are compared."""
        return self.num_bits

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return -(-len(self.rows) // WIDE_BLOCK)

    @property
    def num_valid(self) -> int:
        """Return the number of codes."""
        return len(self.rows)

    def update_nearest(self, queries: Packed, found: Nearest, blocks: range) -> None:
        """Update the nearest items of packed queries (Q, bytes) by a range of blocks."""
        end = min(WIDE_BLOCK * blocks.stop, len(self.rows))
        nearest_rows(self.rows, WIDE_BLOCK * blocks.start, end, code_rows(queries), found, self.bits + 1)

    def collect(self, queries: Packed, limits: Int64s, blocks: range) -> list[Collected]:
        """Return all items of a range of blocks that are below the limits (Q,) of packed queries (Q, bytes)."""
        end, rows = min(WIDE_BLOCK * blocks.stop, len(self.rows)), code_rows(queries)
        full, found = [], empty_collected([WIDE_BLOCK * blocks.start, 0])
        while not collect_rows(self.rows, end, rows, limits, found):
            full.append(found)
            found = empty_collected(found.state[1:])
        return [*full, found]


def slice_codes(rows: CodeRows, bits: int | None = None, blocks: int | None = None) -> SlicedCodes:
    """Return codes `rows` (N, W) as bit planes: of all their bits and as many blocks as they need, unless it is given."""
    bits = 8 * rows.itemsize * rows.shape[1] if bits is None else bits
    blocks = -(-len(rows) // WIDE_BLOCK) if blocks is None else blocks
    planes = empty_words((blocks, bits, WIDE_WORDS))
    slice_rows(rows, 0, planes)
    return SlicedCodes(planes, valid_slots(len(rows), blocks))


class SlicedCodesBuilder:
    """Bit planes of `count` codes that are appended part by part, so that little memory is needed beyond the result."""

    def __init__(self, count: int, bits: int) -> None:
        self._planes = empty_words((-(-count // WIDE_BLOCK), bits, WIDE_WORDS))
        self._count, self._blocks = count, 0
        self._waiting = np.empty((0, -(-bits // 64)), np.uint64)  # codes of a block that is not full

    def append(self, words: Words) -> None:
        """Append codes (W, n)."""
        rows = np.ascontiguousarray(np.concatenate([self._waiting, words.T]))
        full = len(rows) // WIDE_BLOCK
        slice_rows(rows, 0, self._planes[self._blocks : self._blocks + full])
        self._blocks, self._waiting = self._blocks + full, rows[full * WIDE_BLOCK :]

    def build(self) -> SlicedCodes:
        """Return all codes."""
        slice_rows(self._waiting, 0, self._planes[self._blocks :])
        return SlicedCodes(self._planes, valid_slots(self._count, len(self._planes)))


def valid_slots(items: int, blocks: int) -> Words:
    """Return a mask (B, L) of the first `items` slots."""
    return pack_slots(np.arange(WIDE_BLOCK * blocks) < items)


def pack_slots(mask: NDArray[np.bool_]) -> Words:
    """Return a mask of slots (64 L B,) as bits (B, L)."""
    return pack_bits(mask, len(mask) // 64).reshape(-1, WIDE_WORDS)


def prepare_queries(codes: Packed, *, by_tables: bool | None = None) -> SlicedQueries:
    """Return packed codes (Q, bytes) for the kernels; `by_tables` is chosen by their number if it is None."""
    on = np.unpackbits(np.ascontiguousarray(codes), axis=1, bitorder="little")
    bits = on.shape[1]
    levels = next(levels for levels, most in ((7, 64), (9, 504), (11, 2040), (13, 4096)) if bits <= most)
    triples = next((triples for triples, most in ((3, 8), (6, 16), (11, 32)) if bits <= most), 22)
    total = -(-bits // (3 * triples)) * triples
    words, offsets = np.empty((0, bits), np.uint64), np.empty((0, total), np.uint16)
    if len(codes) >= _MIN_TABLE_QUERIES if by_tables is None else by_tables:
        padded = np.zeros((len(on), 3 * total), np.uint16)
        padded[:, :bits] = on
        patterns = padded[:, 0::3] + 2 * padded[:, 1::3] + 4 * padded[:, 2::3]
        offsets = (PATTERN_WORDS * patterns + TRIPLE_WORDS * (np.arange(total) % triples)).astype(np.uint16)
    else:
        words = np.uint64(0) - on.astype(np.uint64)
    return SlicedQueries(words, offsets, (0,) * triples, (0,) * levels)


def limit_planes(limits: Int64s, levels: int) -> Words:
    """Return the bits of limits (Q,) as words (Q, levels) of zeros or of ones."""
    return np.uint64(0) - (limits[:, None] >> np.arange(levels) & 1).astype(np.uint64)


def empty_collected(resume: "Int64s | list[int] | tuple[int, int]" = (0, 0)) -> Collected:
    """Return room for items; a kernel goes on at the block or code, and at the query, that `resume` names."""
    state = np.array([0, *resume], np.int64)
    return Collected(np.empty(_ROOM, np.int32), np.empty(_ROOM, np.int16), np.empty(_ROOM, np.int64), state)
