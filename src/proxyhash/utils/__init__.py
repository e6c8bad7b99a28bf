"""Utilities without knowledge of hashing: errors, registries, random streams, threads, files, progress."""
