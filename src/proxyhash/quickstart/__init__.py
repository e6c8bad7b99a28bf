"""From a person's images to a model, an index and a report: look, choose, and run the commands that one would type."""

from proxyhash.quickstart.choices import Choices, Wishes, choose
from proxyhash.quickstart.facts import Facts, look_at
from proxyhash.quickstart.steps import Places, Step, steps_for

__all__ = ["Choices", "Facts", "Places", "Step", "Wishes", "choose", "look_at", "steps_for"]
