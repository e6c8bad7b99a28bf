"""Decoded uploads into codes: several at once through the index's own model."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.crop import CropBox
from proxyhash.data.decoding import Fit, Pixels
from proxyhash.index.local.index import LocalIndex
from proxyhash.serve.decoder import Crop, Square
from proxyhash.serve.http import RefusalError, busy

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels (side, side, 3) as a job made them for a model: another model would want others."""

    job: Square | Crop
    pixels: NDArray[Any]


class ImageEncoder:
    """The model of an index, which may become another one while the service runs."""

    def __init__(self, index: LocalIndex) -> None:
        self._index = index

    def job(self) -> Square | Crop:
        """Return what must be done to an image for the model to see it as it sees those of the index."""
        transform = self._hasher().transform
        if transform.can_decode_crops:
            return Crop(transform.size, transform.crop_boxes(1, None)[0])
        return Square(transform.side, transform.fit)

    def embed(self, pictures: Sequence[Picture]) -> list[NDArray[np.float32] | Exception]:
        """Return nu (bits,) of each picture."""
        job = self.job()
        fitting = [number for number, picture in enumerate(pictures) if picture.job == job]
        replies: list[NDArray[np.float32] | Exception]
        replies = [busy("The index has just moved to another model; ask again.") for _ in pictures]
        if fitting:
            nu = self._hasher().embed(_Decoded([pictures[number].pixels for number in fitting]))
            for number, row in zip(fitting, nu, strict=True):
                replies[number] = row
        return replies

    def _hasher(self) -> "Hasher":
        if self._index.model is None:
            raise RefusalError(
                422, "The index holds codes from elsewhere and has no model, so search it with codes or keys."
            )
        if not can_encode(self._index):
            raise RefusalError(501, "Images cannot be encoded here, as torch is not installed; search with codes or keys.")
        return self._index.hasher


def can_encode(index: LocalIndex) -> bool:
    """Return whether images become codes of the index here."""
    return index.model is not None and find_spec("torch") is not None


@dataclass(frozen=True)
class _Decoded:
    """Images that were read already, as the collection that a model takes: it asks for just what the job made."""

    pixels: Sequence[NDArray[Any]]

    def __len__(self) -> int:
        return len(self.pixels)

    def key(self, index: int) -> str:
        return f"upload {index}"

    def read(self, index: int) -> Pixels:
        return self.pixels[index]

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:  # noqa: ARG002
        return self.pixels[index]

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:  # noqa: ARG002
        out[:] = self.pixels[index]

    def pixels_in_memory(self, indices: NDArray[np.int64]) -> None:  # noqa: ARG002
        return None

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for pixels in self.pixels:
            digest.update(np.ascontiguousarray(pixels).data)
        return digest.hexdigest()
