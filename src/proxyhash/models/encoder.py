"""Interface of models that encode images, whatever runs the network; this module does not need torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.data.images import ArrayImages, FileImages, Images, Indices
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.models.onnx_backend import Floats, Outputs
from proxyhash.models.runtime import InferenceBackend, run_inference, run_pixels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

ImagesLike = Images | NDArray[np.uint8] | str | Path | Sequence[str | Path]
"""A collection of images, bytes (N, side, side, 3), a file, or several files."""

EmbedBatches = Callable[..., Iterator[tuple[Indices, Floats]]]
"""A function with the signature of `ModelEncoder.embed_batches`."""

FeatureBackend = Callable[[Floats], Outputs]
"""Pixels (n, 3, size, size) from 0 to 255 in, embeddings and features of one pass out."""


class Embedder(Protocol):
    """Embeddings and features of images, batch by batch: a `ModelEncoder`, or what knows the features already."""

    @property
    def embed_batches(self) -> EmbedBatches:
        """Return a function that yields indices and embeddings."""
        ...

    @property
    def output_batches(self) -> "OutputBatches":
        """Return a function that yields indices, and embeddings with features."""
        ...


OutputBatches = Callable[..., Iterator[tuple[Indices, Outputs]]]
"""A function with the signature of `ModelEncoder.output_batches`."""


class ModelEncoder(ABC):
    """A model that gives embeddings nu (N, bits) of images: a `Hasher`, or an `OnnxEncoder`, which needs no torch.

    Attributes
    ----------
    transform
        How images are prepared for the network.
    class_names
        The names of the classes or tags that it was trained with.
    metadata
        The training settings, the data, the protocol and the validation metrics.
    folder
        The folder that it was loaded from or saved to.
    """

    transform: Transform
    class_names: tuple[str, ...]
    metadata: dict[str, Any]
    folder: Path | None

    @property
    @abstractmethod
    def bits(self) -> int:
        """Return the length of the codes."""

    @abstractmethod
    def _backend(self) -> InferenceBackend:
        """Return what runs the network."""

    @property
    def has_features(self) -> bool:
        """Return whether this model gives the features q(x) of images together with their embeddings."""
        return False

    def _feature_backend(self) -> FeatureBackend:
        """Return what runs the network for embeddings and features at once, if `has_features` says so."""
        raise InputError("This model does not give the features of images; save it again with torch.")

    @property
    def out_features(self) -> int:
        """Return the width of the embeddings: the number of bits, unless the head encodes otherwise."""
        return self.bits

    @property
    def width(self) -> int | None:
        """Return the number of values of the vectors that the model takes; None if it takes images."""
        return None

    def encode(self, images: ImagesLike, *, progress: Progress = no_progress) -> Packed:
        """Return packed codes (N, ceil(bits / 8)): the signs of the embeddings, unless the head encodes otherwise."""
        return pack(binarize(self.embed(images, progress=progress)))

    @property
    def pixel_spec(self) -> PixelSpec:
        """Return which pixels `embed_pixels` takes, and how image files are decoded to them."""
        return self.transform.pixel_spec

    @overload
    def embed(self, images: ImagesLike, *, progress: Progress = ...) -> Floats: ...

    @overload
    def embed(
        self,
        images: ImagesLike,
        *,
        on_error: Literal["skip"],
        skipped: SkippedItems | None = ...,
        progress: Progress = ...,
    ) -> tuple[Indices, Floats]: ...

    def embed(
        self,
        images: ImagesLike,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        skipped: SkippedItems | None = None,
        progress: Progress = no_progress,
    ) -> Floats | tuple[Indices, Floats]:
        """Return the embeddings nu (N, bits) of images.

        Parameters
        ----------
        images
            A collection, bytes (N, side, side, 3), a file, or several files.
        on_error
            "raise" for an error at the first image that cannot be read. With "skip", return the indices of the images that
            could be read (n,), and their embeddings (n, bits).
        skipped
            Where unreadable images are counted, with `on_error="skip"`.
        progress
            Called with the share of the images that are done.
        """
        if on_error == "raise":
            return self._run(as_images(images), self._backend(), None, progress, self.out_features)[1]
        skipped = SkippedItems() if skipped is None else skipped
        return self._run(as_images(images), self._backend(), skipped, progress, self.out_features)

    def embed_pixels(self, pixels: NDArray[Any]) -> Floats:
        """Return the embeddings nu (N, bits) of images that were decoded before, the same as `embed` gives for their files.

        Parameters
        ----------
        pixels
            Pixels (N, side, side, 3) of the shape and type that `pixel_spec` describes.

        Examples
        --------
        >>> from proxyhash.data.transforms import get_transform
        >>> from proxyhash.models.backbones import create_backbone
        >>> from proxyhash.models.hasher import Hasher
        >>> from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
        >>> network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, bits=16))).eval()
        >>> hasher = Hasher(network, get_transform("small", 16))
        >>> hasher.pixel_spec
        PixelSpec(side=16, fit='squash', box=None)
        >>> hasher.embed_pixels(np.zeros((3, 16, 16, 3), np.uint8)).shape
        (3, 16)
        """
        nothing = np.zeros((0, self.out_features), np.float32)
        return np.concatenate([nothing, *run_pixels(pixels, self._backend(), self.transform)])

    def embed_batches(
        self, images: ImagesLike, skipped: SkippedItems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Floats]]:
        """Yield indices and embeddings batch by batch, so that results can be stored before all images are done."""
        found = as_images(images)
        return run_inference(found, self._backend(), self.transform, indices=indices, skipped=skipped, progress=progress)

    def output_batches(
        self, images: ImagesLike, skipped: SkippedItems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Outputs]]:
        """Yield indices, and embeddings with features q(x), batch by batch, from one pass through the network."""
        found, backend = as_images(images), self._feature_backend()
        return run_inference(found, backend, self.transform, indices=indices, skipped=skipped, progress=progress)

    def outputs_of_pixels(self, pixels: NDArray[Any]) -> Outputs:
        """Return the embeddings and features of at least one image that was decoded before; see `embed_pixels`."""
        parts = list(run_pixels(pixels, self._feature_backend(), self.transform))
        return Outputs(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _run(
        self, images: Images, backend: InferenceBackend, skipped: SkippedItems | None, progress: Progress, width: int
    ) -> tuple[Indices, Floats]:
        batches = list(run_inference(images, backend, self.transform, skipped=skipped, progress=progress))
        kept, rows = [batch[0] for batch in batches], [batch[1] for batch in batches]
        return np.concatenate([np.zeros(0, np.int64), *kept]), np.concatenate([np.zeros((0, width), np.float32), *rows])


def as_images(images: ImagesLike) -> Images:
    """Return a collection of images."""
    if isinstance(images, np.ndarray):
        return ArrayImages(images)
    if isinstance(images, (str, Path)):
        images = [images]
    if isinstance(images, Sequence):
        if not all(isinstance(path, (str, Path)) for path in images):
            raise InputError("Images are files, or bytes (N, side, side, 3) in one array, or a collection.")
        return FileImages(Path(), [str(path) for path in images])
    return images
