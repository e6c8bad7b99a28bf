"""Trained networks that encode images, and their folders."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from proxyhash.codes.bits import Packed
from proxyhash.data.images import ArrayImages, FileImages, Images, Indices
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones import create_backbone
from proxyhash.models.card import write_card
from proxyhash.models.heads import ConcatHeads, Head, Queries, create_head, describe_head
from proxyhash.models.hub import local_folder
from proxyhash.models.network import HashNetwork
from proxyhash.models.onnx_backend import Floats, OnnxBackend, is_onnx_available
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.probe import compare_onnx, probe_pixels, write_probe
from proxyhash.models.runtime import InferenceBackend, TorchBackend, run_inference, run_pixels
from proxyhash.models.storage import (
    CONFIG,
    FORMAT,
    ONNX,
    PROBE,
    PROXIES,
    WEIGHTS,
    check_files,
    check_replaceable,
    image_size,
    read_config,
    takes_vectors,
)
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_folder, checksum
from proxyhash.utils.config import check_table, from_mapping
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.formats import RELEASE, REQUIRES, dump_json
from proxyhash.utils.progress import Progress, no_progress

ImagesLike = Images | NDArray[np.uint8] | str | Path | Sequence[str | Path]
"""A collection of images, bytes (N, side, side, 3), a file, or several files."""


EmbedBatches = Callable[..., Iterator[tuple[Indices, Floats]]]
"""A function with the signature of `Hasher.embed_batches`."""


@dataclass
class Hasher:
    """A network nu(x) = tanh(L'q(x) + b) with its transform, class names and proxies.

    `proxyhash train` makes one, and `Hasher.load("model")` reads it.

    Parameters
    ----------
    network
        The backbone and the head.
    transform
        How images are prepared for the network.
    class_names
        The names of the classes or tags that it was trained with.
    proxies
        The proxies, if it was trained with any.
    metadata
        The training settings, the data, the protocol and the validation metrics.
    onnx
        The same network for onnxruntime, which is faster on a CPU.
    folder
        The folder that it was loaded from or saved to.
    training_codes
        The codes of the training images, if the method learns them apart from the network. They are not saved.

    Examples
    --------
    >>> from proxyhash.data.transforms import get_transform
    >>> from proxyhash.models.heads import HashHead, HeadConfig
    >>> network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, bits=16))).eval()
    >>> hasher = Hasher(network, get_transform("small", 16))
    >>> hasher.encode(np.zeros((3, 16, 16, 3), np.uint8)).shape  # 16 bits are two bytes
    (3, 2)
    """

    network: HashNetwork
    transform: Transform
    class_names: tuple[str, ...] = ()
    proxies: ProxySet | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    onnx: InferenceBackend | None = field(default=None, repr=False)
    folder: Path | None = None
    training_codes: Packed | None = field(default=None, repr=False)

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.head.config.bits

    @property
    def head(self) -> Head:
        """Return the head, which maps features to embeddings."""
        return self.network.head

    def encode(self, images: ImagesLike, *, progress: Progress = no_progress) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8)): the signs of the embeddings, unless the head encodes otherwise."""
        return self.head.encode(self.embed(images, progress=progress))

    def encode_queries(self, images: ImagesLike, *, progress: Progress = no_progress) -> Queries:
        """Return what is compared with the codes of a database: codes, or tables of asymmetric distances."""
        return self.head.encode_queries(self.embed(images, progress=progress))

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
            return self._run(as_images(images), self._backend(), None, progress, self.head.out_features)[1]
        skipped = SkippedItems() if skipped is None else skipped
        return self._run(as_images(images), self._backend(), skipped, progress, self.head.out_features)

    @property
    def pixel_spec(self) -> PixelSpec:
        """Return which pixels `embed_pixels` takes, and how image files are decoded to them."""
        return self.transform.pixel_spec

    def embed_pixels(self, pixels: NDArray[Any]) -> Floats:
        """Return the embeddings nu (N, bits) of images that were decoded before, the same as `embed` gives for their files.

        Parameters
        ----------
        pixels
            Pixels (N, side, side, 3) of the shape and type that `pixel_spec` describes.

        Examples
        --------
        >>> from proxyhash.data.transforms import get_transform
        >>> from proxyhash.models.heads import HashHead, HeadConfig
        >>> network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, bits=16))).eval()
        >>> hasher = Hasher(network, get_transform("small", 16))
        >>> hasher.pixel_spec
        PixelSpec(side=16, fit='squash', box=None)
        >>> hasher.embed_pixels(np.zeros((3, 16, 16, 3), np.uint8)).shape
        (3, 16)
        """
        nothing = np.zeros((0, self.head.out_features), np.float32)
        return np.concatenate([nothing, *run_pixels(pixels, self._backend(), self.transform)])

    def embed_batches(
        self, images: ImagesLike, skipped: SkippedItems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Floats]]:
        """Yield indices and embeddings batch by batch, so that results can be stored before all images are done."""
        found = as_images(images)
        return run_inference(found, self._backend(), self.transform, indices=indices, skipped=skipped, progress=progress)

    def features(self, images: ImagesLike, *, progress: Progress = no_progress) -> Floats:
        """Return the features q(x) (N, in_features)."""
        backend = TorchBackend(self.network.features)
        return self._run(as_images(images), backend, None, progress, self.head.config.in_features)[1]

    def head_forward(self, features: Floats) -> Floats:
        """Return the embeddings (N, bits) of features q (N, in_features)."""
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            embeddings: Floats = self.head(torch.from_numpy(np.array(features)).to(device)).cpu().numpy()
            return embeddings

    def classify(self, images: ImagesLike, *, progress: Progress = no_progress) -> list[str]:
        """Return the name of the class whose proxy is nearest to each image."""
        nearest = self.nearest_proxies(self.embed(images, progress=progress))
        if nearest.max(initial=-1) >= len(self.class_names):
            raise InputError("This model has more proxies than class names, so it does not classify.")
        return [self.class_names[number] for number in nearest]

    def nearest_proxies(self, embeddings: Floats) -> Indices:
        """Return the number of the class whose proxy has the largest inner product with each embedding (N, bits)."""
        if self.proxies is None:
            raise InputError("This model was trained without proxies, so it does not classify.")
        if self.proxies.bits != embeddings.shape[1]:
            raise InputError(f"This model has proxies of {self.proxies.bits} bits, which its embeddings do not match.")
        nearest: Indices = np.argmax(embeddings @ self.proxies.weights.T, axis=1)
        return nearest

    def save(self, folder: str | Path) -> None:
        """Write the model, its card and, with onnxruntime, its ONNX file to a folder, which is replaced as a whole."""
        folder = Path(folder)
        check_replaceable(folder)
        with atomic_folder(folder) as temporary:
            save_file(_plain_tensors(self.network), temporary / WEIGHTS)
            if self.proxies is not None:
                self.proxies.save(temporary / PROXIES)
            self._save_onnx(temporary)
            sums = {file.name: checksum(file, "sha256") for file in sorted(temporary.iterdir())}
            (temporary / CONFIG).write_text(dump_json(self._config(sums)), encoding="utf-8")
            write_card(temporary)
        self.folder = folder

    def _save_onnx(self, folder: Path) -> None:
        """Write the ONNX file and its probe, if onnxruntime is installed and can run the network."""
        self.use_onnx(folder / ONNX)
        if self.onnx is not None:
            write_probe(folder / PROBE, TorchBackend(self.network)(probe_pixels(self.transform.size)))

    def use_onnx(self, path: Path) -> None:
        """Write an ONNX file and encode with it from now on, if onnxruntime is installed and can run the network."""
        self.onnx = None
        if not is_onnx_available():
            return
        try:
            export_onnx(self.network, path, self.transform.size)
        except InputError as error:
            warnings.warn(f"The model is saved without its ONNX file, and encodes by torch: {error}", ProxyhashWarning, 3)
            return
        self.onnx = OnnxBackend(path)

    @classmethod
    def load(cls, model: str | Path, device: str = "cpu", *, revision: str | None = None) -> Self:
        """Read a folder that `save` wrote; it gives the same codes as before.

        A folder that `proxyhash fit` wrote gives a `VectorHasher`, whose input is vectors.
        `OWNER/NAME@COMMIT`, or `OWNER/NAME` with the commit as `revision`, is a repository of the Hugging Face Hub.
        """
        folder = local_folder(model, revision)
        config = read_config(folder)
        check_files(folder, config.get("sha256"))
        try:
            names = _read_names(config, folder)
            if takes_vectors(config):
                return _load_vector_hasher(config, folder, names, device)  # type: ignore[return-value]
            transform, network = _read_transform(config, folder), _read_network(config, folder)
            metadata = _read_metadata(config, folder)
        except (OSError, SafetensorError, ValueError, *_WRONG_CONTENT) as error:
            if isinstance(error, InputError):
                raise
            reason = f"{CONFIG} lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]
            raise InputError(f"{folder} is not a model that can be read: {reason}.") from error
        proxies = ProxySet.load(folder / PROXIES) if PROXIES in config["sha256"] else None
        onnx = _load_onnx(folder, transform.size, network) if (folder / ONNX).is_file() and is_onnx_available() else None
        return cls(network.to(device).eval(), transform, names, proxies, metadata, onnx, folder)

    def _config(self, sums: dict[str, str]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            REQUIRES: RELEASE,
            "backbone": self.network.features.backbone.config.name,
            "head": describe_head(self.head),
            "transform": asdict(self.transform),
            "class_names": self.class_names,
            "sha256": sums,
            "metadata": self.metadata,
        }

    def _backend(self) -> InferenceBackend:
        """Return onnxruntime on a CPU, if there is an ONNX file, or else torch."""
        on_cpu = next(self.network.parameters()).device.type == "cpu"
        return self.onnx if on_cpu and self.onnx is not None else TorchBackend(self.network)

    def _run(
        self, images: Images, backend: InferenceBackend, skipped: SkippedItems | None, progress: Progress, width: int
    ) -> tuple[Indices, Floats]:
        batches = list(run_inference(images, backend, self.transform, skipped=skipped, progress=progress))
        kept, rows = [batch[0] for batch in batches], [batch[1] for batch in batches]
        return np.concatenate([np.zeros(0, np.int64), *kept]), np.concatenate([np.zeros((0, width), np.float32), *rows])


def _load_vector_hasher(config: dict[str, Any], folder: Path, names: tuple[str, ...], device: str) -> Hasher:
    from proxyhash.models.vector_hasher import VectorHasher  # a subclass of Hasher

    proxies = ProxySet.load(folder / PROXIES) if PROXIES in config["sha256"] else None
    return VectorHasher.from_config(config, folder, names, proxies, device)


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


_WRONG_CONTENT = (KeyError, AttributeError, TypeError, RuntimeError, OverflowError, ZeroDivisionError)


def _read_transform(config: dict[str, Any], folder: Path) -> Transform:
    image_size(config, folder)
    return from_mapping(Transform, config["transform"], owner=f"{folder / CONFIG}: transform")


def _read_names(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    names = config["class_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{folder / CONFIG}: class_names must be a list of names.")
    return tuple(names)


def _read_metadata(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    metadata = config["metadata"]
    check_table(f"{folder / CONFIG}: metadata", metadata)
    return dict(metadata)


def _read_network(config: dict[str, Any], folder: Path) -> HashNetwork:
    """Return the network with its weights; a head that the weights cannot fill is refused before memory is allocated."""
    if not isinstance(config["backbone"], str):
        raise InputError(f"{folder / CONFIG}: backbone must be a name.")
    weights = load_file(folder / WEIGHTS)
    with torch.device("meta"):
        needed = sum(tensor.numel() for tensor in create_head(config["head"]).state_dict().values())
    if needed > sum(tensor.numel() for tensor in weights.values()):
        raise InputError(f"{folder / CONFIG} describes a larger head than {WEIGHTS} holds.")
    network = HashNetwork(create_backbone(config["backbone"], pretrained=False), create_head(config["head"]))
    check_tensors(weights, network.state_dict(), folder / WEIGHTS)
    network.load_state_dict(weights)
    return network.eval()


def check_tensors(weights: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], path: Path) -> None:
    """Raise for numbers that `load_state_dict` would take over: of another type, infinite or NaN."""
    for name, tensor in weights.items():
        if name in expected and tensor.is_floating_point() != expected[name].is_floating_point():
            raise InputError(f"{path} is not a network of this model: {name} has the type {tensor.dtype}.")
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise InputError(f"{path} holds numbers that are not finite, in {name}; train the model again.")


def _load_onnx(folder: Path, size: int, network: HashNetwork) -> OnnxBackend:
    onnx = OnnxBackend(folder / ONNX)
    compare_onnx(folder, onnx, size, TorchBackend(network))
    return onnx


def _plain_tensors(network: HashNetwork) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}


def concat_hashers(hashers: Sequence[Hasher]) -> Hasher:
    """Return one hasher with the embeddings of several side by side; they must share a backbone and a transform."""
    first = hashers[0]
    network = HashNetwork(first.network.features.backbone, ConcatHeads([hasher.head for hasher in hashers]))
    return Hasher(network.eval(), first.transform, metadata=first.metadata)
