"""Backbones q(x) by name."""

from importlib.util import find_spec

from proxyhash.utils.errors import InputError

if find_spec("torch") is None:
    raise InputError('Networks need torch; run pip install "proxyhash[train]".')

# Importing a module registers its networks.
from proxyhash.models.backbones import alexnet, convnet, efficientnet_lite  # noqa: F401
from proxyhash.models.backbones.base import (
    Backbone,
    BackboneConfig,
    create_backbone,
    list_backbones,
    pretraining_data,
    register_backbone,
)
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.backbones.wrapped import wrap_backbone

__all__ = [
    "Backbone",
    "BackboneConfig",
    "create_backbone",
    "list_backbones",
    "pretraining_data",
    "register_backbone",
    "split_stages",
    "wrap_backbone",
]
