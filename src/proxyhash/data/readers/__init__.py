"""One file for each way in which data sets lie on a disk; each gives a `Dataset`."""
