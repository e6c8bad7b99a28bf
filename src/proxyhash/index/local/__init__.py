"""Index in a folder of this machine: SQLite storage, and snapshots of its codes in memory."""
