"""`Hasher`: a trained network that turns images into codes, and its folder on disk."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from proxyhash.codes.bits import Packed
from proxyhash.data.images import ArrayImages, FileImages, Images, Indices
from proxyhash.data.skipped import Problems
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones import create_backbone
from proxyhash.models.card import write_card
from proxyhash.models.heads import Head, Queries, describe_head, make_head
from proxyhash.models.hub import local_folder
from proxyhash.models.network import HashNetwork
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.running import run_images
from proxyhash.models.runtime import Floats, OnnxRunner, Runner, TorchRunner, onnx_available
from proxyhash.models.storage import (
    CONFIG,
    FORMAT,
    ONNX,
    PROXIES,
    WEIGHTS,
    check_files,
    check_replaceable,
    read_config,
)
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_folder, checksum
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.progress import Progress, no_progress

Anything = Images | NDArray[np.uint8] | str | Path | Sequence[str | Path]
"""Images: a collection, bytes (N, side, side, 3), one file, or several files."""


EmbedBatches = Callable[..., Iterator[tuple[Indices, Floats]]]
"""A function with the signature of `Hasher.embed_batches`."""


@dataclass
class Hasher:
    """nu(x) = tanh(L'q(x) + b) and what belongs to it: how images are prepared, class names, proxies, its history.

    `proxyhash train` makes one, and `Hasher.load("model")` reads it; here is one with random weights:

    >>> from proxyhash.data.transforms import find_transform
    >>> from proxyhash.models.heads import HashHead, HeadShape
    >>> network = HashNetwork(create_backbone("convnet", pretrained=False), HashHead(HeadShape(256, bits=16))).eval()
    >>> hasher = Hasher(network, find_transform("small", 16))
    >>> hasher.encode(np.zeros((3, 16, 16, 3), np.uint8)).shape  # 16 bits are two bytes
    (3, 2)
    """

    network: HashNetwork
    transform: Transform
    names: tuple[str, ...] = ()  # of the classes or tags it was trained with
    proxies: ProxySet | None = None
    record: dict[str, Any] = field(default_factory=dict)  # how it came to be: data, protocol, method, settings, validation
    onnx: Runner | None = field(default=None, repr=False)  # the same network by onnxruntime, once it is in a folder
    folder: Path | None = None  # where it was loaded from or saved to
    training_codes: Packed | None = field(default=None, repr=False)  # if learned apart from the network; not saved

    @property
    def bits(self) -> int:
        """Return the length of its codes."""
        return self.head.shape.bits

    @property
    def head(self) -> Head:
        """Return what maps features to nu."""
        return self.network.head

    def encode(self, images: Anything, *, progress: Progress = no_progress) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8)): the signs of nu, unless its head codes otherwise."""
        return self.head.codes(self.embed(images, progress=progress))

    def queries(self, images: Anything, *, progress: Progress = no_progress) -> Queries:
        """Return what the evaluation compares with the codes of a database: codes, or tables where these are searched."""
        return self.head.queries(self.embed(images, progress=progress))

    def embed(self, images: Anything, *, progress: Progress = no_progress) -> Floats:
        """Return nu (N, bits); an image that cannot be read is an error."""
        return self.embed_readable(images, None, progress=progress)[1]

    def embed_readable(
        self, images: Anything, problems: Problems | None, *, progress: Progress = no_progress
    ) -> tuple[Indices, Floats]:
        """Return which images could be read (n,) and their nu (n, bits); the others are counted in `problems`."""
        return self._run(as_images(images), self._runner(), problems, progress, self.head.outputs)

    def embed_batches(
        self, images: Anything, problems: Problems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Floats]]:
        """Yield the same batch by batch, so that what is made of it can be stored before all images are done."""
        found = as_images(images)
        return run_images(found, self._runner(), self.transform, indices=indices, problems=problems, progress=progress)

    def features(self, images: Anything, *, progress: Progress = no_progress) -> Floats:
        """Return q(x) (N, width)."""
        runner = TorchRunner(self.network.features)
        return self._run(as_images(images), runner, None, progress, self.head.shape.width)[1]

    def hash_features(self, features: Floats) -> Floats:
        """Return nu (N, bits) for features q (N, width) that were computed before."""
        device = next(self.network.parameters()).device
        with torch.inference_mode():
            nu: Floats = self.head(torch.from_numpy(np.array(features)).to(device)).cpu().numpy()
            return nu

    def classify(self, images: Anything, *, progress: Progress = no_progress) -> list[str]:
        """Return the name of the class whose proxy is nearest to each image."""
        return [self.names[number] for number in self.nearest_proxies(self.embed(images, progress=progress))]

    def nearest_proxies(self, nu: Floats) -> Indices:
        """Return the number of the class whose proxy has the largest inner product with nu (N, bits)."""
        if self.proxies is None:
            raise InputError("This model was trained without proxies, so it does not classify.")
        nearest: Indices = np.argmax(nu @ self.proxies.weights.T, axis=1)
        return nearest

    def save(self, folder: Path) -> None:
        """Write everything and a card to a folder, which is replaced as a whole; with onnxruntime, the ONNX file too."""
        check_replaceable(folder)
        with atomic_folder(folder) as temporary:
            save_file(_plain_tensors(self.network), temporary / WEIGHTS)
            if self.proxies is not None:
                self.proxies.save(temporary / PROXIES)
            self.quicken(temporary / ONNX)
            sums = {file.name: checksum(file, "sha256") for file in sorted(temporary.iterdir())}
            (temporary / CONFIG).write_text(json.dumps(self._config(sums), indent=2), encoding="utf-8")
            write_card(temporary)
        self.folder = folder

    def quicken(self, path: Path) -> None:
        """Write an ONNX file and encode by it from now on, if that can be done here; without it torch does."""
        self.onnx = None
        if not onnx_available():
            return
        try:
            export_onnx(self.network, path, self.transform.size)
        except InputError as error:
            warnings.warn(f"The model is saved without its ONNX file, and encodes by torch: {error}", ProxyhashWarning, 3)
            return
        self.onnx = OnnxRunner(path)

    @classmethod
    def load(cls, model: str | Path, device: str = "cpu", *, revision: str | None = None) -> Self:
        """Read a folder that `save` wrote; it gives the same codes as before.

        `OWNER/NAME@COMMIT`, or `OWNER/NAME` with the commit as `revision`, is a repository of the Hugging Face Hub.
        """
        folder = local_folder(model, revision)
        config = read_config(folder)
        try:
            check_files(folder, config["sha256"])
            backbone = create_backbone(config["backbone"], pretrained=False)
            network = HashNetwork(backbone, make_head(config["head"]))
            network.load_state_dict(load_file(folder / WEIGHTS))
            transform, names, record = Transform(**config["transform"]), tuple(config["names"]), config["record"]
        except (OSError, SafetensorError, KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise InputError(f"{folder} is not a model that can be read: {' '.join(str(error).split())}.") from error
        proxies = ProxySet.load(folder / PROXIES) if PROXIES in config["sha256"] else None
        onnx = OnnxRunner(folder / ONNX) if (folder / ONNX).is_file() and onnx_available() else None
        return cls(network.to(device).eval(), transform, names, proxies, record, onnx, folder)

    def _config(self, sums: dict[str, str]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "backbone": self.network.features.backbone.facts.name,
            "head": describe_head(self.head),
            "transform": asdict(self.transform),
            "names": self.names,
            "sha256": sums,
            "record": self.record,
        }

    def _runner(self) -> Runner:
        """Return the fast way on a CPU, if there is one, or else torch."""
        on_cpu = next(self.network.parameters()).device.type == "cpu"
        return self.onnx if on_cpu and self.onnx is not None else TorchRunner(self.network)

    def _run(
        self, images: Images, runner: Runner, problems: Problems | None, progress: Progress, width: int
    ) -> tuple[Indices, Floats]:
        parts = list(run_images(images, runner, self.transform, problems=problems, progress=progress))
        kept, rows = [part[0] for part in parts], [part[1] for part in parts]
        return np.concatenate([np.zeros(0, np.int64), *kept]), np.concatenate([np.zeros((0, width), np.float32), *rows])


def as_images(images: Anything) -> Images:
    """Return a collection of what a person would call images."""
    if isinstance(images, np.ndarray):
        return ArrayImages(images)
    if isinstance(images, (str, Path)):
        images = [images]
    if isinstance(images, Sequence):
        if not all(isinstance(path, (str, Path)) for path in images):
            raise InputError("Images are files, or bytes (N, side, side, 3) in one array, or a collection.")
        return FileImages(Path(), [str(path) for path in images])
    return images


def _plain_tensors(network: HashNetwork) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
