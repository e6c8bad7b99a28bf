"""Tables of multi-index hashing: the codes of a segment sorted by each of several substrings."""

from typing import NamedTuple

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Int, Int64s, UInt32s
from proxyhash.index.mih.substrings import Substrings
from proxyhash.utils.jit import jit
from proxyhash.utils.parallel import available_threads, ordered_map


class Tables(NamedTuple):
    """Tables of m substrings of N codes of W words.

    An entry of a table is one word of a code and the position of the code. The entries of substring t with the value v are
    `offsets[bases[t] + v]` to `offsets[bases[t] + v + 1]`. A bucket is so read in one piece, and most codes are rejected by
    that word alone.
    """

    starts: Int64s
    """(m,): first bit of each substring"""
    lengths: Int64s
    """(m,): bits of each substring"""
    bases: Int64s
    """(m,): where the offsets of each table begin"""
    offsets: UInt32s
    """(sum of 2^length + 1,)"""
    word_index: Int64s
    """(m,): which word of the codes the entries of a table hold"""
    words: Words
    """(m, N)"""
    positions: UInt32s
    """(m, N)"""
    rows: Words
    """(N, W): the codes by position; (0, W) if W = 1, because an entry holds the whole code"""
    item_ids: UInt32s
    """(N,): the item ids by position"""


def build_tables(words: Words, item_ids: Int64s, bits: int, substrings: Substrings, threads: int | None = None) -> Tables:
    """Return the tables of codes `words` (W, N) of `bits` bits with their `item_ids` (N,)."""
    number, count = len(substrings), words.shape[1]
    sizes = 2**substrings.lengths + 1
    tables = Tables(
        substrings.starts,
        substrings.lengths,
        np.concatenate([[0], np.cumsum(sizes)[:-1]]),
        np.zeros(sizes.sum(), np.uint32),
        (substrings.starts // 64 + 1) % max(1, bits // 64),  # another word than the substring's: it has other bits
        np.empty((number, count), np.uint64),
        np.empty((number, count), np.uint32),
        np.ascontiguousarray(words.T) if len(words) > 1 else np.empty((0, 1), np.uint64),
        item_ids.astype(np.uint32),
    )
    workers = min(number, available_threads() if threads is None else threads)
    for _ in ordered_map(lambda table: _fill_table(words, tables, table), range(number), workers):
        pass
    return tables


@jit(nogil=True, skip_refcounts=True, inline="always")
def substring_value(first: Int, second: Int, start: Int, length: Int) -> Int:
    """Return `length` bits from bit `start` of two words, the first of which has bit `start` % 64."""
    shift = np.uint64(start & 63)
    value = first >> shift
    if shift:
        value |= second << (np.uint64(64) - shift)
    return value & ((np.uint64(1) << np.uint64(length)) - np.uint64(1))


@jit(nogil=True, skip_refcounts=True)
def _fill_table(words: Words, tables: Tables, table: Int) -> None:
    """Sort the codes by the value of one substring, equal ones by position: count, then write."""
    start, length, base = tables.starts[table], tables.lengths[table], tables.bases[table]
    first = words[start >> 6]
    second = words[min((start >> 6) + 1, len(words) - 1)]
    kept, entry_words, positions = words[tables.word_index[table]], tables.words[table], tables.positions[table]
    offsets, values = tables.offsets[base : base + (1 << length) + 1], np.int64(1) << length
    for code in range(words.shape[1]):
        offsets[np.int64(substring_value(first[code], second[code], start, length)) + 1] += 1
    for value in range(values):
        offsets[value + 1] += offsets[value]
    for code in range(words.shape[1]):
        bucket = np.int64(substring_value(first[code], second[code], start, length))
        entry = offsets[bucket]
        entry_words[entry], positions[entry] = kept[code], code
        offsets[bucket] += 1
    for value in range(values, 0, -1):  # each offset has moved to the next bucket
        offsets[value] = offsets[value - 1]
    offsets[0] = 0
