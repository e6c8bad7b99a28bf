"""Refinement: a finer representation of each item, which orders items at the same Hamming distance."""
