"""Networks of the user, any `nn.Module`, as backbones."""

import copy
import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone, BackboneConfig, PerChannel
from proxyhash.models.backbones.modes import in_mode
from proxyhash.models.backbones.pooling import GlobalAveragePool
from proxyhash.models.device import module_device
from proxyhash.models.storage import MAX_IMAGE_SIZE, MODULE_PREFIX
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as torchvision and timm have them

ModuleLike = nn.Module | Callable[[], nn.Module]
"""A network, or a class or function that makes one."""


class WrappedBackbone(Backbone):
    """A network of the user; feature maps (N, F, H, W) are averaged over their positions."""

    def __init__(self, config: BackboneConfig, module: nn.Module) -> None:
        super().__init__(config)
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, num_features) of normalized images (N, 3, H, W)."""
        features: Tensor = self.module(images)
        return features.mean((2, 3)) if features.ndim == 4 else features

    def stages(self) -> list[nn.Module]:
        """Return the children of an `nn.Sequential`; other networks have no stages."""
        module = self.module
        if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward or len(module) < 2:
            raise self.cannot_be_cut()
        *lower, last = module
        return [*lower, nn.Sequential(last, GlobalAveragePool())]

    def accepts(self, image_size: int) -> bool:
        """Return whether the network takes images of this size and gives as many features."""
        try:
            return _count_features(self.module, image_size) == self.config.num_features
        except InputError:
            return False


class MissingBackbone(Backbone):
    """Stand-in for the network of a model that was loaded without it, and that encodes by its ONNX file."""

    def forward(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Raise an `InputError` that says what to pass."""
        raise InputError(
            f"This needs the network {class_name(self.config)}; load the model with {how_to_pass(self.config)}."
        )


def wrap_backbone(
    module: nn.Module,
    *,
    image_size: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    num_features: int | None = None,
) -> Backbone:
    """Return any network as a backbone.

    Parameters
    ----------
    module
        A network from images (N, 3, H, W) to features (N, F), or to maps (N, F, H, W), which are averaged over H and W.
        It is not changed: training and loading work on copies.
    image_size
        The side of its images in pixels.
    mean, std
        The normalization of each channel for pixels from 0 to 1, as in torchvision and timm; None for that of ImageNet. For
        a network that takes pixels from 0 to 1 itself, `mean=(0, 0, 0), std=(1, 1, 1)`.
    num_features
        The number F of features; None for what one image of zeros gives. Another number than that is an error.

    Returns
    -------
    Backbone
        With a `config` whose mean and std are those of pixels from 0 to 255.

    Raises
    ------
    InputError
        If the network does not take such images, or gives no features of these shapes.

    Examples
    --------
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> wrap_backbone(network, image_size=16).config.num_features
    8
    >>> wrap_backbone(nn.Flatten(0), image_size=16)
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: Flatten gives (768) for one image, and a backbone gives (1, F) or (1, F, H, W).
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"A backbone is an instance of nn.Module, not {_described(module)}.")
    check_int("image_size", image_size, 1, MAX_IMAGE_SIZE)
    config = BackboneConfig(
        name=f"{MODULE_PREFIX}{type(module).__name__}",
        image_size=image_size,
        mean=_pixel_scale("mean", IMAGENET_MEAN if mean is None else mean),
        std=_pixel_scale("std", IMAGENET_STD if std is None else std),
        num_features=_count_features(module, image_size),
    )
    if num_features not in {None, config.num_features}:
        raise InputError(f"{class_name(config)} gives {config.num_features} features, not {num_features}.")
    return WrappedBackbone(config, module)


def copy_backbone(backbone: Backbone) -> Backbone:
    """Return a copy with 32-bit floats, so that training does not change the network of the user."""
    try:
        return copy.deepcopy(backbone).float()
    except Exception as error:  # modules may hold anything
        raise InputError(f"{class_name(backbone.config)} cannot be copied: {_reason(error)}.") from error


def restore_backbone(given: ModuleLike, config: BackboneConfig) -> Backbone:
    """Return a network that is passed again when a model is loaded, with the normalization that the model was saved with."""
    module = given if isinstance(given, nn.Module) else given()
    if isinstance(module, WrappedBackbone):
        module = module.module
    if not isinstance(module, nn.Module):
        raise InputError(f"backbone must be the network, as in {how_to_pass(config)}, not {_described(module)}.")
    found = _count_features(module, config.image_size)  # this also fills the shapes of lazy modules
    if found != config.num_features:
        raise InputError(f"{type(module).__name__} gives {found} features, and the model has {config.num_features}.")
    return copy_backbone(WrappedBackbone(config, module))


def weights_checksum(backbone: Backbone) -> str:
    """Return 16 hexadecimal digits of the weights."""
    digest = hashlib.sha256()
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def class_name(config: BackboneConfig) -> str:
    """Return the name of the class of a wrapped network."""
    return config.name.removeprefix(MODULE_PREFIX)


def how_to_pass(config: BackboneConfig) -> str:
    """Return the call that loads a model with its network."""
    return f"Hasher.load(..., backbone={class_name(config)}(...))"


def _count_features(module: nn.Module, image_size: int) -> int:
    """Return the number of features of one image of zeros; modes and running statistics stay as they are."""
    name, images = type(module).__name__, torch.zeros(1, 3, image_size, image_size, device=module_device(module))
    try:
        with in_mode(module, training=False), torch.no_grad():
            output = module(images)
    except Exception as error:  # the code of the user may raise anything
        raise InputError(f"{name} cannot take an image (1, 3, {image_size}, {image_size}): {_reason(error)}.") from error
    if not isinstance(output, Tensor):
        raise InputError(f"{name} gives a {type(output).__name__}, and a backbone gives one tensor.")
    if output.ndim not in {2, 4} or len(output) != 1 or not output.is_floating_point() or output.numel() == 0:
        shape = ", ".join(map(str, output.shape))
        raise InputError(f"{name} gives ({shape}) for one image, and a backbone gives (1, F) or (1, F, H, W).")
    return int(output.shape[1])


def _pixel_scale(name: str, values: Sequence[float]) -> PerChannel:
    """Return numbers for pixels from 0 to 1 as those for pixels from 0 to 255."""
    numbers = [float(value) for value in values]
    if len(numbers) != 3:
        raise InputError(f"{name} must have three numbers, one for each channel, not {len(numbers)}.")
    for number in numbers:
        if not 0 <= number <= 1 or (name == "std" and number == 0):
            limits = "above 0 and at most 1" if name == "std" else "from 0 to 1"
            raise InputError(f"{name} must be {limits}, for pixels from 0 to 1, not {number:g}; divide it by 255.")
    red, green, blue = (255 * number for number in numbers)
    return red, green, blue


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200].rstrip(".")
