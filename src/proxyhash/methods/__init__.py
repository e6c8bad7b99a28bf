"""The systems that the paper compares with, each one file, all under one contract."""

from proxyhash.methods import shallow  # noqa: F401  its methods register themselves
from proxyhash.methods.registry import Lesson, Method, find_method, fit_method, list_methods

__all__ = ["Lesson", "Method", "find_method", "fit_method", "list_methods"]
