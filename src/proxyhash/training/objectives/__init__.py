"""Training methods: what each adds to the shared trainer."""

from proxyhash.training.objectives import proxy, triplet  # noqa: F401  they register their methods
from proxyhash.training.objectives.objective import Objective, Task
from proxyhash.training.objectives.registry import (
    build_objective,
    check_settings,
    find_objective,
    list_objectives,
    objective,
)

__all__ = ["Objective", "Task", "build_objective", "check_settings", "find_objective", "list_objectives", "objective"]
