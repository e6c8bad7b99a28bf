"""Trained networks that encode images, and their folders."""

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import save_file

from proxyhash.codes.bits import Packed
from proxyhash.data.images import Indices
from proxyhash.data.transforms import Transform
from proxyhash.models.backbones import Backbone
from proxyhash.models.backbones.wrapped import (
    MissingBackbone,
    ModuleLike,
    WrappedBackbone,
)
from proxyhash.models.card import write_card
from proxyhash.models.device import find_device, module_device
from proxyhash.models.encoder import FeatureBackend, ImagesLike, ModelEncoder, as_images
from proxyhash.models.heads import ConcatHeads, Head, Queries, describe_head
from proxyhash.models.hub import local_folder, push_folder
from proxyhash.models.network import HashNetwork, NetworkWithFeatures
from proxyhash.models.network_files import backbone_settings, read_network
from proxyhash.models.onnx_backend import (
    FEATURES,
    Floats,
    OnnxBackend,
    is_onnx_available,
    is_onnxruntime_available,
)
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.precision import Precision, check_precision
from proxyhash.models.probe import compare_onnx, probe_pixels, write_probe
from proxyhash.models.runtime import InferenceBackend
from proxyhash.models.storage import (
    CONFIG,
    FORMAT,
    ONNX,
    PROBE,
    PROXIES,
    WEIGHTS,
    check_files,
    check_replaceable,
    read_class_names,
    read_config,
    read_metadata,
    read_transform,
    takes_vectors,
    translate_errors,
)
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.proxies import ProxySet
from proxyhash.utils.atomic_io import atomic_folder, checksum
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.formats import RELEASE, REQUIRES, dump_json
from proxyhash.utils.progress import Progress, no_progress


@dataclass
class Hasher(ModelEncoder):
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
    precision
        Precision of the forward pass by torch. Less than float32 changes some bits; see the page about GPUs.

    Examples
    --------
    >>> from proxyhash.data.transforms import get_transform
    >>> from proxyhash.models.backbones import create_backbone
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
    precision: Precision = "float32"

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.head.config.bits

    @property
    def backbone(self) -> Backbone:
        """Return the backbone, which maps normalized images to features."""
        return self.network.features.backbone

    @property
    def head(self) -> Head:
        """Return the head, which maps features to embeddings."""
        return self.network.head

    @property
    def out_features(self) -> int:
        """Return the width of the embeddings: the number of bits, unless the head encodes otherwise."""
        return self.head.out_features

    def encode(self, images: ImagesLike, *, progress: Progress = no_progress) -> Packed:
        """Return packed codes (N, ceil(bits / 8)): the signs of the embeddings, unless the head encodes otherwise."""
        return self.head.encode(self.embed(images, progress=progress))

    def encode_queries(self, images: ImagesLike, *, progress: Progress = no_progress) -> Queries:
        """Return what is compared with the codes of a database: codes, or tables of asymmetric distances."""
        return self.head.encode_queries(self.embed(images, progress=progress))

    def features(self, images: ImagesLike, *, progress: Progress = no_progress) -> Floats:
        """Return the features q(x) (N, in_features)."""
        backend = TorchBackend(self.network.features)
        return self._run(as_images(images), backend, None, progress, self.head.config.in_features)[1]

    def head_forward(self, features: Floats) -> Floats:
        """Return the embeddings (N, bits) of features q (N, in_features)."""
        device = module_device(self.network)
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
        self._check_complete()
        with atomic_folder(folder) as temporary:
            save_file(_plain_tensors(self.network), temporary / WEIGHTS)
            if self.proxies is not None:
                self.proxies.save(temporary / PROXIES)
            self._save_onnx(temporary)
            sums = {file.name: checksum(file, "sha256") for file in sorted(temporary.iterdir())}
            (temporary / CONFIG).write_text(dump_json(self._config(sums)), encoding="utf-8")
            write_card(temporary)
        self.folder = folder

    def _check_complete(self) -> None:
        """Raise an `InputError` if the weights of the backbone were not read."""
        if isinstance(self.backbone, MissingBackbone):
            self.backbone(torch.empty(0))  # it raises what to pass

    def _save_onnx(self, folder: Path) -> None:
        """Write the ONNX file and its probe, if onnxruntime is installed and can run the network."""
        self.use_onnx(folder / ONNX)
        if self.onnx is not None or isinstance(self.backbone, WrappedBackbone):
            write_probe(folder / PROBE, TorchBackend(self.network)(probe_pixels(self.transform.size)))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Upload the model, its card and its ONNX file to the Hugging Face Hub, in one commit.

        A hasher that was saved or loaded pushes its folder as it is, with the metrics and the calibration that were added to
        it; another one is saved to a temporary folder first.

        Parameters
        ----------
        repo_id
            The repository OWNER/NAME, which is created if it does not exist.
        private
            Whether a new repository is private; None for the default of the owner.
        token
            An access token; None for that of `hf auth login` or `HF_TOKEN`.
        commit_message
            The title of the commit.

        Returns
        -------
        str
            The commit, for `Hasher.load(repo_id, revision=commit)`.

        Raises
        ------
        InputError
            If the Hub refuses the upload or cannot be reached.
        """
        options: dict[str, Any] = {"private": private, "token": token, "message": commit_message}
        if self.folder is not None:
            return push_folder(self.folder, repo_id, **options)
        with tempfile.TemporaryDirectory(prefix="proxyhash-") as temporary:
            try:
                self.save(Path(temporary) / "model")
                return push_folder(Path(temporary) / "model", repo_id, **options)
            finally:
                self.folder = None

    def use_onnx(self, path: Path) -> None:
        """Write an ONNX file and encode with it from now on, if onnxruntime is installed and can run the network."""
        self.onnx = None
        if not is_onnx_available():
            return
        try:
            export_onnx(NetworkWithFeatures(self.network), path, self.transform.size, outputs=("nu", FEATURES))
        except InputError as error:
            warnings.warn(f"The model is saved without its ONNX file, and encodes by torch: {error}", ProxyhashWarning, 3)
            return
        self.onnx = OnnxBackend(path)

    @classmethod
    def load(
        cls,
        model: str | Path,
        device: str = "cpu",
        *,
        revision: str | None = None,
        backbone: ModuleLike | None = None,
        precision: Precision = "float32",
    ) -> Self:
        """Read a folder that `save` wrote; on the CPU it gives the same codes as before.

        A folder that `proxyhash fit` wrote gives a `VectorHasher`, whose input is vectors.

        Parameters
        ----------
        model
            The folder. `OWNER/NAME@COMMIT`, or `OWNER/NAME` with the commit as `revision`, is a repository of the Hugging
            Face Hub.
        device
            A name as `find_device` takes it, such as cuda or auto.
        revision
            The commit of a repository.
        backbone
            The network of a model that was trained with `wrap_backbone`: an instance, which is copied and gets the saved
            weights, or a class or function that makes one. Without it, such a model still encodes by its ONNX file.
        precision
            Precision of the forward pass by torch.

        Raises
        ------
        InputError
            If the folder is not a whole model, or if the network is needed and missing, or another one.
        """
        check_precision(precision)
        device = find_device(device)
        folder = local_folder(model, revision)
        config = read_config(folder)
        check_files(folder, config.get("sha256"))
        with translate_errors(folder):
            names, metadata = read_class_names(config, folder), read_metadata(config, folder)
            if takes_vectors(config):
                return _load_vector_hasher(config, folder, device)  # type: ignore[return-value]
            transform, network = read_transform(config, folder), read_network(config, folder, backbone)
        proxies = ProxySet.load(folder / PROXIES) if PROXIES in config["sha256"] else None
        has_onnx = (folder / ONNX).is_file() and is_onnxruntime_available()
        onnx = _load_onnx(folder, transform.size, network) if has_onnx else None
        network = network.to(device).eval()
        return cls(network, transform, names, proxies, metadata, onnx, folder, precision=precision)

    def _config(self, sums: dict[str, str]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            REQUIRES: RELEASE,
            **backbone_settings(self.backbone),
            "head": describe_head(self.head),
            "transform": asdict(self.transform),
            "class_names": self.class_names,
            "sha256": sums,
            "metadata": self.metadata,
        }

    def _backend(self) -> InferenceBackend:
        """Return onnxruntime on a CPU in float32, or without the network, if there is an ONNX file, or else torch."""
        preferred = module_device(self.network).type == "cpu" and self.precision == "float32"
        if self.onnx is not None and (preferred or isinstance(self.backbone, MissingBackbone)):
            return self.onnx
        return TorchBackend(self.network, self.precision)

    @property
    def has_features(self) -> bool:
        """Return whether features q(x) can be computed: not without the network, if the ONNX file does not give them."""
        return not isinstance(self.backbone, MissingBackbone) or _has_features(self.onnx)

    def _feature_backend(self) -> FeatureBackend:
        backend = self._backend()
        if isinstance(backend, OnnxBackend) and backend.has_features:
            return backend.with_features
        self._check_complete()
        return TorchBackend(self.network, self.precision).with_features


def _has_features(backend: InferenceBackend | None) -> bool:
    return isinstance(backend, OnnxBackend) and backend.has_features


def _load_vector_hasher(config: dict[str, Any], folder: Path, device: str) -> Hasher:
    from proxyhash.models.vector_hasher import VectorHasher  # a subclass of Hasher

    return VectorHasher.from_config(config, folder, device)


def _load_onnx(folder: Path, size: int, network: HashNetwork) -> OnnxBackend:
    onnx = OnnxBackend(folder / ONNX)
    compare_onnx(folder, onnx, size, TorchBackend(network))
    return onnx


def _plain_tensors(network: HashNetwork) -> dict[str, torch.Tensor]:
    """Return the weights as safetensors takes them: contiguous, and tied ones as copies."""
    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in network.state_dict().items():
        plain = tensor.detach().cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        tensors[name] = plain.clone() if storage in seen else plain
        seen.add(storage)
    return tensors


def concat_hashers(hashers: Sequence[Hasher]) -> Hasher:
    """Return one hasher with the embeddings of several side by side; they must share a backbone and a transform."""
    first = hashers[0]
    network = HashNetwork(first.backbone, ConcatHeads([hasher.head for hasher in hashers]))
    return Hasher(network.eval(), first.transform, metadata=first.metadata)
