"""Methods and optimizer settings for what a model is to retrieve: images of the classes it learned, or of new ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import shorten

Goal = Literal["known-classes", "new-classes"]
Trained = Literal["head", "upper stages", "everything"]


@dataclass(frozen=True)
class GoalSettings:
    """A method with its settings, as in "shclm:loss=bits", and changes of the optimizer settings."""

    method: str
    optim: Mapping[str, Any] = field(default_factory=dict)


_KNOWN, _NEW = "shclm:loss=bits", "joint:distance_share=0.5"
_SLOW = {"epochs": 1, "lr": 0.0015, "backbone_lr": 0.0003}  # Features of new classes are lost by learning fast.
# docs/training.md, "Known or new classes", says which of them were chosen on held-out data, and which were not. Those for
# everything are taken over from those for the upper stages.
_SETTINGS: Mapping[tuple[Goal, Trained], GoalSettings] = {
    ("known-classes", "head"): GoalSettings(_KNOWN, {"lr": 0.03}),
    ("known-classes", "upper stages"): GoalSettings(_KNOWN),
    ("known-classes", "everything"): GoalSettings(_KNOWN),
    ("new-classes", "head"): GoalSettings(_NEW, {"lr": 0.0015, "hidden_dim": 0}),
    ("new-classes", "upper stages"): GoalSettings(_NEW, _SLOW),
    ("new-classes", "everything"): GoalSettings(_NEW, {**_SLOW, "progressive_resize": 1.0}),
}


def goal_settings(goal: str, trained: Trained) -> GoalSettings:
    """Return the method and the optimizer settings for a goal.

    Parameters
    ----------
    goal
        known-classes, if the images to be searched have the classes of the training images; new-classes, if others.
    trained
        What is trained of the network.

    Raises
    ------
    InputError
        For another goal.

    Examples
    --------
    >>> goal_settings("new-classes", "head")
    GoalSettings(method='joint:distance_share=0.5', optim={'lr': 0.0015, 'hidden_dim': 0})
    >>> goal_settings("everything", "head")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: A model is trained for known-classes or for new-classes, not for 'everything'.
    """
    if goal not in get_args(Goal):
        raise InputError(f"A model is trained for known-classes or for new-classes, not for {shorten(goal)}.")
    return _SETTINGS[goal, trained]  # type: ignore[index]
