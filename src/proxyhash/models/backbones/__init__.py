"""Image networks q(x) by name: `create_backbone("efficientnet_lite0")`."""

from importlib.util import find_spec

from proxyhash.utils.errors import InputError

if find_spec("torch") is None:
    raise InputError('Networks need torch; run pip install "proxyhash[train]".')

# Importing a file registers the networks in it.
from proxyhash.models.backbones import alexnet, convnet, efficientnet_lite  # noqa: F401
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.facts import BackboneConfig
from proxyhash.models.backbones.registry import create_backbone, list_backbones, pretraining_data

__all__ = ["Backbone", "BackboneConfig", "create_backbone", "list_backbones", "pretraining_data"]
