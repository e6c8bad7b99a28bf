"""The search service: an index behind HTTP, and a page to look at it."""
