"""What an index keeps on disk: a SQLite file with items, and with codes in blocks that have checksums."""
