"""Hashing methods, the data they learn from, and the encoders they produce."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.labels import ClassLabels, Labels, TagLabels
from proxyhash.models.heads import HashHead, Head, HeadConfig
from proxyhash.proxies import ProxySet
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import upgrade_method_tensors
from proxyhash.utils.progress import Progress, no_progress

Floats = NDArray[np.float32]
SearchSpace = tuple[dict[str, Any], ...]
TUNED = "tuned"
"""In the row of a grid, the value of a setting that tuning chooses for each code length."""


@dataclass(frozen=True)
class TrainingData:
    """The images that a method learns from, and the length of the codes that it should produce.

    Parameters
    ----------
    bits
        The length of codes.
    features
        q(x) of the images (n, width), or a function that loads them; None if there are none.
    labels
        Classes or tags of the images, with their names; None if there are none.
    seed
        Decides every random draw.
    progress
        Called with a text and a fraction.
    finetune
        Whether the backbone is trained too.

    Examples
    --------
    >>> labels = ClassLabels.from_names(["cat", "dog", "dog"])
    >>> data = TrainingData(8, np.zeros((3, 4), np.float32), labels)
    >>> data.num_classes, data.has_tags
    (2, False)
    """

    bits: int
    features: Floats | Callable[[], Floats] | None = None
    labels: Labels | None = None
    seed: int = field(default=0, kw_only=True)
    progress: Progress = field(default=no_progress, repr=False, kw_only=True)
    finetune: bool = field(default=False, kw_only=True)

    @classmethod
    def from_arrays(cls, bits: int, features: Floats | None, labels: NDArray[Any], **options: Any) -> Self:
        """Return training data with classes (n,) of integers or tags (n, T) of booleans, whose names are their numbers.

        Examples
        --------
        >>> TrainingData.from_arrays(8, None, np.array([0, 2, 1])).require_labels().names
        ('0', '1', '2')
        """
        if labels.ndim == 1:
            names = tuple(str(number) for number in range(int(labels.max(initial=-1)) + 1))
            return cls(bits, features, ClassLabels(labels, names), **options)
        names = tuple(str(number) for number in range(labels.shape[1]))
        return cls(bits, features, TagLabels(labels.astype(bool), names), **options)

    @property
    def has_tags(self) -> bool:
        """Return whether the images have tags instead of classes."""
        return self.labels is not None and self.labels.is_multi_label

    @property
    def num_classes(self) -> int:
        """Return the number of classes or tags."""
        return self.require_labels().num_classes

    def require_labels(self) -> Labels:
        """Return the labels; images without any are an error."""
        if self.labels is None:
            raise InputError("These images have no labels.")
        return self.labels

    def require_class_labels(self) -> ClassLabels:
        """Return the classes; images with tags, or without labels, are an error."""
        if not isinstance(self.labels, ClassLabels):
            raise InputError("These images have no classes.")
        return self.labels

    def load_features(self) -> Floats:
        """Return q(x) (n, width); it may take time."""
        if self.features is None:
            raise InputError("These images have no features.")
        return self.features() if callable(self.features) else self.features


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method: a frozen dataclass, of which this is one without any.

    `SEARCH_SPACE` lists the settings that tuning tries. `PRESETS` are settings by name, so that `shclm:paper` may be typed.
    `VALUES_BY_LENGTH` lists the values of settings that tuning may choose for each code length, the default first; a grid
    has them as `shclm:triplet=tuned`. A field `samples_per_class` asks for batches with that many images of each class,
    unless images have tags.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({},)
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    VALUES_BY_LENGTH: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return the settings that tuning tries, by default `SEARCH_SPACE`.

        Parameters
        ----------
        tags
            Whether images have tags instead of classes.
        fixed
            Settings that are given and are not tuned.
        """
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with defaults filled in that depend on the data; by default there are none."""
        return self


class HashingMethod(nn.Module, ABC):
    """A method that trains a network: a loss, its head, its parameters, and an optional step between epochs.

    A new method is a subclass with a `forward`, registered with `@register_method`. Its parameters are trained with those
    of the network.

    Parameters
    ----------
    data
        The training images.
    settings
        An instance of the registered settings class.
    """

    checkpoint_names: Mapping[str, str] = {}  # by tensor: its name in checkpoints, so that those of all releases can be read
    settings: Any
    samples_per_class: int  # images of one class in a batch; 0: random batches
    waits_for_device: bool = False  # its loss reads numbers from a GPU in every step, which then waits
    momentum: float | None = None  # decay of a momentum encoder, whose embeddings `observe` gets; None: there is none

    def __init__(self, data: TrainingData, settings: MethodSettings) -> None:
        super().__init__()
        self.settings = settings
        self.register_state_dict_post_hook(_to_checkpoint_names)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_from_checkpoint_names)  # type: ignore[no-untyped-call]
        # An image with several tags belongs to no single class.
        self.samples_per_class = 0 if data.has_tags else getattr(settings, "samples_per_class", 0)

    def build_head(self, config: HeadConfig) -> Head:
        """Return the head from features (N, width) to outputs (N, bits), or to other outputs that it can encode."""
        return HashHead(config)

    @abstractmethod
    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar.

        Parameters
        ----------
        embeddings
            Outputs of the head (N, bits).
        targets
            Classes (N,), or tags (N, T) of 0 and 1.
        indices
            The positions of the batch's images in the training data (N,).
        """

    def lr_factors(self) -> Mapping[str, float]:
        """Return learning rates of the method's own parameters, by name, relative to that of the heads; 1 for all others."""
        return {}

    def observe(self, embeddings: Tensor, indices: Tensor) -> None:
        """Take the embeddings of a batch by the momentum encoder; called before the loss of the batch.

        The momentum encoder is a copy of the network whose weights are a moving average, w = m w + (1 - m) v in every step,
        for the weights v that are trained and m = `momentum`.

        Parameters
        ----------
        embeddings
            Outputs of the head (N, bits), without gradients.
        indices
            The positions of the batch's images in the training data (N,).
        """

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Update the method between epochs; by default nothing is done.

        Parameters
        ----------
        embed
            Returns the embeddings (n, bits) of all training images.
        head
            The head that is trained; weights or codebooks that it encodes with may be set.
        """

    def scores(self, embeddings: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the scores of each class or tag (N, C), or None if the method does not classify."""
        return None

    def training_codes(self) -> Tensor | None:
        """Return codes (n, bits) of the training images if they are learned apart from the network, or None."""
        return None

    def proxies(self) -> ProxySet | None:
        """Return the proxies, if the method has any."""
        return None


def _to_checkpoint_names(method: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    assert isinstance(method, HashingMethod)
    for name, stored in method.checkpoint_names.items():
        state[prefix + stored] = state.pop(prefix + name)


def _from_checkpoint_names(method: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    assert isinstance(method, HashingMethod)
    upgrade_method_tensors(state, prefix)
    for name, stored in method.checkpoint_names.items():
        if prefix + stored in state:
            state[prefix + name] = state.pop(prefix + stored)


class Encoder(Protocol):
    """A fitted method: features (N, width) to packed codes.

    For every metric, `mean_average_precision(encoder.encode_queries(q), q_labels, encoder.encode(db), db_labels)` is the
    mAP.
    """

    @property
    def method(self) -> str:
        """Return the name of the method."""
        ...

    @property
    def bits(self) -> int:
        """Return the length of codes."""
        ...

    @property
    def metric(self) -> str:
        """Return how codes are compared: "hamming", or another one by lookup tables."""
        ...

    def embed(self, features: Floats) -> Floats:
        """Return the values that codes are made of: (N, bits) with the codes as signs, if the metric is hamming."""
        ...

    def encode(self, features: Floats) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        ...

    def encode_queries(self, features: Floats) -> NDArray[np.uint8] | Floats:
        """Return what is compared with codes: packed codes (Q, bytes), or tables (Q, M, k) as `codes.tables` has them."""
        ...

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        ...
