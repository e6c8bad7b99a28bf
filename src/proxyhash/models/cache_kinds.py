"""Kinds of entries in the user's cache, and what their names say."""

import re
from dataclasses import dataclass
from pathlib import Path

from proxyhash.data.catalog import DATASETS

PROGRESS = "progress.json"  # of an interrupted extraction: the number of complete rows
NOTHING = r"(?!)"
TRASH = ".cleared-"  # prefix of folders that are being deleted
_RANDOM = r"[a-z0-9_]{8}"  # what `tempfile` appends to a prefix
_ROW_NAMES = re.compile(
    r"(?P<dataset>.+?)-(?P<network>(?:(?:timm|module)-)?[^-]+)-(?P<size>\d+)(?:-upper(?P<upper>\d+))?-(?P<key>[0-9a-f]{16})"
)


@dataclass(frozen=True)
class CacheKind:
    """A folder below the root of the cache, and the names of its entries.

    Parameters
    ----------
    name
        The name of the folder.
    folders, files
        Regular expressions of the names that proxyhash gives to folders and files in it.
    is_derived
        Whether deleted entries are computed again when they are needed, without a download or other input.
    has_rows
        Whether an entry is a `RowCache`, which is locked while it is filled.
    """

    name: str
    folders: str = NOTHING
    files: str = NOTHING
    is_derived: bool = False
    has_rows: bool = False

    def owns(self, name: str, *, is_folder: bool) -> bool:
        """Return whether an entry has a name that proxyhash gives."""
        return re.fullmatch(self.folders if is_folder else self.files, name) is not None

    def is_temporary(self, name: str) -> bool:
        """Return whether a folder has the name of one that is moved to its place, or deleted, in one step."""
        pattern = rf"\.(?:{self.folders})(?:-old)?-{_RANDOM}|{re.escape(TRASH)}{_RANDOM}"
        return re.fullmatch(pattern, name) is not None

    def is_lock(self, name: str) -> bool:
        """Return whether a file is the lock of an entry."""
        return self.has_rows and re.fullmatch(rf"\.(?:{self.folders})\.lock", name) is not None


@dataclass(frozen=True)
class RowSource:
    """What the name of an entry of features or activations says: data set, network, image size and key.

    `upper` is the number of upper stages above activations, None for features.
    """

    dataset: str
    network: str
    image_size: int
    upper: int | None
    key: str


def _names_of_datasets() -> tuple[str, str]:
    """Return regular expressions of the folders and archives of data sets that are downloaded; the user copied others."""
    downloaded = [(info.folder, info.archive.name) for info in DATASETS.values() if info.archive]
    folders, archives = ("|".join(map(re.escape, names)) for names in zip(*downloaded, strict=True))
    return folders, rf"(?:{archives})(?:\.part)?"


_DATA_FOLDERS, _DATA_ARCHIVES = _names_of_datasets()
MODELS = CacheKind("models", r"[0-9a-f]{16}")
KINDS = {
    kind.name: kind
    for kind in (
        CacheKind("features", _ROW_NAMES.pattern, is_derived=True, has_rows=True),
        CacheKind("activations", _ROW_NAMES.pattern, is_derived=True, has_rows=True),
        CacheKind("compiled", r".+_[0-9a-f]{40}", is_derived=True),
        CacheKind("weights", files=r"[\w.-]+-[0-9a-f]{8,64}\.pth(?:\.part)?"),
        CacheKind("data", _DATA_FOLDERS, _DATA_ARCHIVES),
        MODELS,
    )
}
"""The kinds by name: features and activations of networks, compiled functions, downloaded weights, published data sets, and
models of indexes on a Milvus server."""


def is_temporary_model(name: str) -> bool:
    """Return whether a folder at the root of the cache is a model on its way to the other models."""
    return re.fullmatch(r"\.models-[0-9a-f]{32}", name) is not None or re.fullmatch(TRASH + _RANDOM, name) is not None


def lock_path(entry: Path) -> Path:
    """Return the file that is locked while an entry of features or activations is filled."""
    return entry.with_name(f".{entry.name}.lock")


def parse_row_name(name: str) -> RowSource | None:
    """Return what the name of an entry of features or activations says; None for another name.

    Examples
    --------
    >>> parse_row_name("my-photos-timm-resnet18-224-upper2-0123456789abcdef")
    RowSource(dataset='my-photos', network='timm/resnet18', image_size=224, upper=2, key='0123456789abcdef')
    """
    match = _ROW_NAMES.fullmatch(name)
    if match is None:
        return None
    upper = None if match["upper"] is None else int(match["upper"])
    network = re.sub(r"^(timm|module)-", r"\1/", match["network"])
    return RowSource(match["dataset"], network, int(match["size"]), upper, match["key"])
