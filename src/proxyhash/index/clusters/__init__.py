"""The codes of an index in memory, and the compiled loops that search them exactly without looking at all."""
