"""Groups of images that are added and removed together, while upgrades give all of them the codes of another model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from helpers.images import save_image, smooth_image
from helpers.models import make_model
from helpers.stamped_groups import GroupWriter, Operation, Progress, WrongAnswerError, check_distances, timed
from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.index import Index, Match, Matches

BITS = 32
MEMBERS = 6
MODELS = 3  # two upgrades at once need two models besides that of the index
MARGIN = 0.001  # of embeddings around zero, where a batch and a single image may be rounded to different bits


@dataclass(frozen=True)
class ImageGroups:
    """Images, models, and the code that each model gives to each image, in a folder."""

    folder: Path

    @property
    def models(self) -> list[Path]:
        """Return the folders of the models."""
        return [self.folder / "models" / str(number) for number in range(MODELS)]

    @cached_property
    def codes(self) -> Packed:
        """Return the codes by model, group and member (models, groups, members, bytes)."""
        codes: Packed = np.load(self.folder / "codes.npy")
        return codes

    def __len__(self) -> int:
        """Return the number of groups."""
        return self.codes.shape[1]

    def root(self, group: int) -> Path:
        """Return the folder of a group's images."""
        return (self.folder / "photos" / f"group-{group:03d}").resolve()

    def path(self, key: str) -> Path:
        """Return the file of an item."""
        return (self.folder / "photos" / key).resolve()

    def keys(self, group: int) -> list[str]:
        """Return the keys of a group."""
        return [f"group-{group:03d}/{member}.png" for member in range(MEMBERS)]


def make_image_groups(folder: Path, groups: int) -> ImageGroups:
    """Write images and models, and encode all images by all models."""
    from proxyhash.models.hasher import Hasher

    made = ImageGroups(folder)
    with patch.object(Hasher, "use_onnx"):  # the export takes seconds for each model, and torch is as fast for tiny images
        hashers = [Hasher.load(make_model(BITS, seed, model)) for seed, model in enumerate(made.models)]
    count = groups * MEMBERS
    pixels = np.stack([smooth_image(seed, 16, 16) for seed in range(2 * count)])
    embeddings = np.stack([hasher.embed(pixels) for hasher in hashers])
    chosen = np.flatnonzero(np.abs(embeddings).min(axis=(0, 2)) > MARGIN)[:count]
    for image, key in zip(pixels[chosen], [key for group in range(groups) for key in made.keys(group)], strict=True):
        save_image(image, made.path(key))
    codes = pack(binarize(embeddings[:, chosen].reshape(-1, BITS)))
    np.save(folder / "codes.npy", codes.reshape(MODELS, groups, MEMBERS, -1))
    return made


class ImageWriter(GroupWriter):
    """Adds and removes groups of images at random."""

    def __init__(
        self, index: Index, progress: Progress, images: ImageGroups, ledger: Path, seed: Sequence[int] = (0,)
    ) -> None:
        super().__init__(index, progress, range(len(images)), ledger, seed)
        self.images = images

    def keys(self, group: int) -> list[str]:
        """Return the keys of a group."""
        return self.images.keys(group)

    def write(self, groups: Sequence[int], stamp: int) -> None:  # noqa: ARG002  # images have no stamp
        """Add the images of groups, each in one transaction; those that are there stay."""
        from proxyhash.data import SkippedItems
        from proxyhash.index.folder_sync import add_folder

        for group in groups:
            add_folder(self.index, self.images.root(group), SkippedItems(strict=True), prefix=f"group-{group:03d}/")


class ImageReader:
    """Searches images and raises a WrongAnswerError if an answer mixes models, or fits no committed state."""

    def __init__(self, index: Index, progress: Progress, images: ImageGroups, seed: Sequence[int] = (0,)) -> None:
        self.index, self.progress, self.images = index, progress, images
        self._random = np.random.default_rng(seed)

    def step(self) -> Operation:
        """Search by the code of an image for all items, and check them."""
        return Operation("search", self.read_all().seconds)

    def search_by_image(self) -> Operation:
        """Search by an image file, which the model of that moment encodes."""
        before = self.progress.acknowledged.copy()
        group, member = self._group(), int(self._random.integers(MEMBERS))
        file = self.images.path(self.images.keys(group)[member])
        everything = len(self.images) * MEMBERS
        (matches,), seconds = timed(lambda: self.index.search(file, everything, with_codes=True, threads=1))
        model = check_models(self.images, matches)
        encoded = self.images.codes[:, group, member]  # by each model
        nearest = np.frombuffer(matches[0].code or b"", np.uint8) if len(matches) else encoded[model]
        if len(matches) and np.bitwise_count(encoded[model] ^ nearest).sum() != matches[0].distance:
            raise WrongAnswerError(f"The codes are those of model {model}, and the query is that of another one.")
        self._check(encoded[model], matches, before)
        return Operation("search by image", seconds)

    def read_all(self, before: NDArray[np.int64] | None = None) -> Operation:
        """Read all items, as a step does; `before` has the states that were acknowledged before the index was copied."""
        before = self.progress.acknowledged.copy() if before is None else before
        query = self.images.codes[0, self._group(), :1]
        (matches,), seconds = timed(lambda: self.index.range_search(query, BITS, with_codes=True, threads=1))
        self._check(query[0], matches, before)
        return Operation("read all", seconds)

    def _group(self) -> int:
        return int(self._random.integers(len(self.images)))

    def _check(self, query: Packed, matches: Matches, before: NDArray[np.int64]) -> None:
        check_distances(query, matches)
        shown = check_images(self.images, matches)
        for group, before_it in enumerate(before.tolist()):
            self.progress.check(group, shown.get(group), before_it, stamped=False)


def check_models(images: ImageGroups, matches: Sequence[Match]) -> int:
    """Return the number of the model that made all codes of an answer; raise a WrongAnswerError if there is none."""
    places = [(int(match.key[6:9]), int(match.key[10:-4])) for match in matches]
    groups, numbers = np.array(places, int).reshape(-1, 2).T
    found = np.frombuffer(b"".join(match.code or b"" for match in matches), np.uint8).reshape(-1, BITS // 8)
    are_same = (images.codes[:, groups, numbers] == found).all(axis=2)
    if not are_same.all(axis=1).any():
        raise WrongAnswerError(f"Of {len(matches)} codes, {are_same.sum(axis=1).tolist()} are those of each model.")
    return int(are_same.all(axis=1).argmax())


def check_images(images: ImageGroups, matches: Sequence[Match]) -> dict[int, int]:
    """Return the groups that an answer with all items shows, each as state 1, after a check of codes, members and files."""
    check_models(images, matches)
    for match in matches:
        if match.path != images.path(match.key):
            raise WrongAnswerError(f"{match.key} has the file {match.path}.")
    keys = {match.key for match in matches}
    shown = {int(key[6:9]): 1 for key in keys}
    for group in shown:
        if missing := set(images.keys(group)) - keys:
            raise WrongAnswerError(f"Group {group} has {MEMBERS - len(missing)} of {MEMBERS} images.")
    if len(keys) != len(matches):
        raise WrongAnswerError(f"{len(matches)} items have {len(keys)} keys.")
    return shown
