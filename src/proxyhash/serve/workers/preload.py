"""Imports of the fork server, from which workers are forked: they share its memory and start at once."""

from proxyhash.serve.workers import searcher
from proxyhash.serve.workers.decoder import compile_kernels

__all__ = ["searcher"]

compile_kernels()
