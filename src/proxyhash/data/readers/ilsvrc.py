"""ILSVRC-2012, in the usual layout: `train/n01440764/*.JPEG` and `val/n01440764/*.JPEG`."""

from pathlib import Path

from proxyhash.data.catalog import DatasetInfo
from proxyhash.data.dataset import Dataset
from proxyhash.data.readers.folder import load_folder
from proxyhash.data.readers.listing import list_subfolders
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def load_ilsvrc(record: DatasetInfo, folder: Path, *, strict: bool = False, progress: Progress = no_progress) -> Dataset:
    """List the images; classes are the WordNet names of the folders, in their order."""
    for part in ("train", "val"):
        if not (folder / part).is_dir():
            raise InputError(f"{folder} has no folder {part}; it must hold {record.layout}.")
        if (folder / part).is_symlink():
            raise InputError(
                f"{folder / part} is a link, and these are not followed inside a data set; link {folder} instead."
            )
    if not list_subfolders(folder, "val"):
        raise InputError(f"{folder / 'val'} has no class folders; sort its images into val/n01440764/ and so on.")
    classes = {part: set(list_subfolders(folder, part)) for part in ("train", "val")}
    if classes["train"] != classes["val"]:
        odd = sorted(classes["train"] ^ classes["val"])
        raise InputError(f"{folder} has {len(odd)} classes in only one of train and val, the first is {odd[0]}.")
    # Beside them there may be the unlabeled test images, a development kit and other things.
    return load_folder(folder, strict=strict, name=record.name, only=("train", "val"), progress=progress)
