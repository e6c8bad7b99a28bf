"""Filters of a search: expressions over labels and columns of items."""
