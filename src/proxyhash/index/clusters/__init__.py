"""Exact search of codes in memory, clustered so that most of them are pruned."""
