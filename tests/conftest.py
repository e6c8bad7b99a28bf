"""Shared by all tests: hypothesis without a clock, because this runs on busy machines too, and torch on one thread."""

import os

from hypothesis import settings

settings.register_profile("steady", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("steady")

# One thread, here and in processes that tests start: sums then round the same way in each, and nobody waits for cores.
os.environ["OMP_NUM_THREADS"] = "1"
