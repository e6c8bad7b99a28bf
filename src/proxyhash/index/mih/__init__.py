"""Multi-index hashing: exact search by tables of substrings of the codes."""
