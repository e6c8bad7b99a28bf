"""Shared by all tests: hypothesis without a clock, because this runs on busy machines too."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("steady")
