"""Vectors as input: files that hold them, with keys and labels, and rows that are read and checked on demand."""

from proxyhash.data.vectors.files import VectorFile, read_labels, read_tags, read_vectors
from proxyhash.data.vectors.rows import CHUNK_ROWS, VectorRows

__all__ = ["CHUNK_ROWS", "VectorFile", "VectorRows", "read_labels", "read_tags", "read_vectors"]
