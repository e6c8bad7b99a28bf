"""Lower and upper parts of backbones, for partial fine-tuning."""

from torch import nn

from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.wrapped import class_name
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import shorten


def split_stages(backbone: Backbone, upper: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Return the lower and the upper part of a backbone.

    Both share the parameters of the backbone, which stays as it is. Their modes are set by their own `train` and `eval`.

    Parameters
    ----------
    backbone
        A backbone with stages, on the device where its parts will run.
    upper
        The number of stages of the upper part, such as `backbone.last_stages`.

    Returns
    -------
    nn.Sequential
        The lower part, from normalized images (N, 3, H, W) to activations.
    nn.Sequential
        The upper part, from activations to features (N, num_features).

    Raises
    ------
    InputError
        If the backbone cannot be cut, or not at this stage.

    Examples
    --------
    >>> import torch
    >>> from proxyhash.models.backbones import create_backbone
    >>> lower, upper = split_stages(create_backbone("convnet", pretrained=False), 1)
    >>> activations = lower(torch.zeros(2, 3, 8, 8))
    >>> activations.shape, upper(activations).shape
    (torch.Size([2, 64, 4, 4]), torch.Size([2, 256]))
    """
    stages = backbone.stages()
    if len(stages) < 2:
        raise backbone.cannot_be_cut()
    name, most = class_name(backbone.config), len(stages) - 1
    if isinstance(upper, bool) or not isinstance(upper, int) or not 1 <= upper <= most:
        raise InputError(
            f"{name} has {len(stages)} stages, and the last 1 to {most} can be trained, not {shorten(upper)}; "
            "use 'all' to train everything."
        )
    lower_part, upper_part = nn.Sequential(*stages[:-upper]), nn.Sequential(*stages[-upper:])
    weights = {id(each) for each in upper_part.parameters()}
    if not weights:
        raise InputError(f"The last {upper} of the {len(stages)} stages of {name} have no weights; train more of them.")
    if any(id(each) in weights for each in lower_part.parameters()):
        raise InputError(f"{name} uses the same weights in both of its parts; train another number of stages.")
    return lower_part, upper_part
