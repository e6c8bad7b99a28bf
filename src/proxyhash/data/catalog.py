"""Data sets that are known by name, with the checksums of their official files."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proxyhash.utils.atomic_io import checksum
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class Archive:
    """A published file with its md5, or with the beginning of its sha256."""

    url: str
    md5: str
    size: int = 0  # in bytes; 0 if it is not published
    sha256: str = ""

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.url.rsplit("/", 1)[-1]

    def matches(self, path: Path) -> bool:
        """Return whether a file is this one, by its checksum."""
        if self.sha256:
            return checksum(path, "sha256").startswith(self.sha256)
        return checksum(path, "md5") == self.md5


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a published data set.

    Parameters
    ----------
    name, summary
        Its name, and what it holds in words.
    kind, num_classes
        The kind of its labels, and the number of classes or tags.
    train, test
        The number of images in its training and test set.
    image_size
        The size of its images, in words.
    folder, layout
        The name of its folder inside a data folder (empty if it needs none), and the files that must be in it, in words.
    files
        The name and the md5 of each official file in the folder.
    archive
        The archive to download, if there is one.
    homepage
        Where it is published.
    overlapping_pretraining
        Training sets of well-known networks that hold many of its classes.
    """

    name: str
    summary: str
    kind: Literal["classes", "tags"]
    num_classes: int
    train: int
    test: int
    image_size: str
    folder: str
    layout: str
    files: tuple[tuple[str, str], ...] = ()
    archive: Archive | None = None
    homepage: str = ""
    overlapping_pretraining: tuple[str, ...] = ()

    @property
    def num_images(self) -> int:
        """Return the number of images."""
        return self.train + self.test


CIFAR10 = DatasetInfo(
    name="cifar10",
    summary="small photographs of 10 classes",
    kind="classes",
    num_classes=10,
    train=50_000,
    test=10_000,
    image_size="32 x 32",
    folder="cifar-10-batches-py",
    layout="data_batch_1 to data_batch_5, test_batch and batches.meta",
    files=(
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        ("test_batch", "40351d587109b95175f43aff81a1287e"),
        ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
    ),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
    ),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    overlapping_pretraining=("ILSVRC-2012",),
)

CIFAR100 = DatasetInfo(
    name="cifar100",
    summary="small photographs of 100 classes",
    kind="classes",
    num_classes=100,
    train=50_000,
    test=10_000,
    image_size="32 x 32",
    folder="cifar-100-python",
    layout="train, test and meta",
    files=(
        ("train", "16019d7e3df5f24257cddd939b257f8d"),
        ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ("meta", "7973b15100ade9c7d40fb424638fde48"),
    ),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437
    ),
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    overlapping_pretraining=("ILSVRC-2012",),
)

ILSVRC2012 = DatasetInfo(
    name="ilsvrc2012",
    summary="photographs of 1,000 classes (ImageNet)",
    kind="classes",
    num_classes=1_000,
    train=1_281_167,
    test=50_000,
    image_size="any",
    folder="ilsvrc2012",
    layout="train/n01440764/*.JPEG and val/n01440764/*.JPEG, one folder for each class",
    homepage="https://image-net.org/challenges/LSVRC/2012",
    overlapping_pretraining=("ILSVRC-2012",),
)

NUSWIDE = DatasetInfo(
    name="nuswide",
    summary="tagged photographs of the web, the 21 most frequent of 81 tags",
    kind="tags",
    num_classes=21,
    train=195_834,  # images with at least one of the 21 tags; the protocol, not the publisher, chooses queries
    test=0,
    image_size="any",
    folder="nus-wide",
    layout="ImageList/Imagelist.txt, Groundtruth/AllLabels/Labels_*.txt, and the images in Flickr/ or images/",
    homepage="https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html",
)

DIGITS = DatasetInfo(
    name="digits",
    summary="handwritten digits that come with scikit-learn",
    kind="classes",
    num_classes=10,
    train=1_797,
    test=0,
    image_size="8 x 8",
    folder="",
    layout="",
)

DATASETS = {info.name: info for info in (CIFAR10, CIFAR100, ILSVRC2012, NUSWIDE, DIGITS)}


def list_datasets() -> list[str]:
    """Return the names of the known data sets.

    Examples
    --------
    >>> list_datasets()
    ['cifar10', 'cifar100', 'ilsvrc2012', 'nuswide', 'digits']
    """
    return list(DATASETS)


def get_dataset_info(name: str) -> DatasetInfo:
    """Return the description of a known data set.

    Raises
    ------
    InputError
        For an unknown name, with a suggestion.

    Examples
    --------
    >>> get_dataset_info("cifar100").num_images
    60000
    """
    if name in DATASETS:
        return DATASETS[name]
    plain = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    close = difflib.get_close_matches(plain, DATASETS, n=1, cutoff=0.7)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(DATASETS)}, or give the path of a folder."
    raise InputError(f"There is no data set and no folder called {name}; {hint}")
